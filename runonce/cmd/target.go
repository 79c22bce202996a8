package cmd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/internal/portforward"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/files"
)

// target is where the pods of a command run: this machine or a cluster. Commands do not know which. It is
// opened by the first method that needs that, and closed by the command.
type target interface {
	// input completes how manifests are read.
	input(o *manifests.Options)
	// plan returns the plan that a run of the manifests would make.
	plan(ctx context.Context, set *manifests.Set) (report.Plan, error)
	// prepare makes the plan of a run, and what its pods need before they can be started.
	prepare(ctx context.Context, set *manifests.Set) (admit.Plan, error)
	// complete completes how the plan is carried out.
	complete(o *runonce.Options)
	// runtime runs the pods, and logs has their logs.
	runtime() runonce.Runtime
	logs() runonce.Logs
	// instances returns the containers of a pod of the run that have logs, the oldest first.
	instances(r *runonce.Result) []instance
	// follow has the follower show the logs of the pods from now on.
	follow(f *logFollower, pods []*v1.Pod)
	// interact has the interaction's container take part from its start on, or from now on if it runs.
	interact(ctx context.Context, i *interaction)
	// conclude removes what prepare has made, if the run removes its pods, and says what those that stay lack. lost
	// returns why they were not known any more at the end.
	conclude(ctx context.Context)
	lost() error
	// ociRuntime returns the OCI runtime of new containers, nil if that is not known here.
	ociRuntime() *report.Runtime
	// list returns the pods of earlier runs. On a cluster of which the user may not see all, they are those in
	// the namespaces.
	list(ctx context.Context, namespaces func() []string) ([]*v1.Pod, error)
	// states returns the pods of earlier runs with what is known of them, except their containers.
	states(ctx context.Context, namespaces func() []string) ([]report.PodState, error)
	// neverStarted returns the pods that the last runs have not started, besides those that are known.
	neverStarted(known []report.PodState) ([]report.PodState, error)
	// describe adds to a description what it does not have from states, logs, usage and the runtime.
	describe(ctx context.Context, d *report.Description) error
	// remains returns what is known of a pod that states does not have.
	remains(ref, namespace string) (report.Remains, error)
	// observe returns the pods that exist, also those that a run has admitted and not started yet, and what sees
	// them on their way to the goal.
	observe(ctx context.Context, namespaces func() []string, until runonce.Until) ([]*v1.Pod, runonce.Observer, error)
	// logSources returns the logs that the options select, at least one.
	logSources(ctx context.Context, o logOptions) ([]logSource, error)
	// events shows the events of pods. If they are followed, it shows them again when others have happened.
	events(ctx context.Context, o eventOptions, show func([]report.Event) error) error
	// usage returns what the pods, which list has returned, use of processors and memory on average over the interval,
	// nil for those of which that is not known because they do not run or were just started.
	usage(ctx context.Context, pods []*v1.Pod, interval time.Duration) ([]*podusage.Pod, error)
	// find returns the pod that a reference names; the namespace is "" for all.
	find(ctx context.Context, ref, namespace string) (*v1.Pod, error)
	// exec runs a command in a container, and returns its exit code.
	exec(ctx context.Context, pod *v1.Pod, container string, command runtime.Command, s engine.Streams) (int32, error)
	// attach attaches to a container, and returns its exit code.
	attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error)
	// debug starts an ephemeral container in a pod, and returns when it runs or has ended. The interaction, if it is not
	// nil, has it take part.
	debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer, i *interaction) error
	// exitCode returns the exit code of a container that ends.
	exitCode(ctx context.Context, pod *v1.Pod, container string) (int32, error)
	// destination returns the pod or the Service that a reference names; the namespace may be "". If it is a Closer, it
	// has to be closed.
	destination(ctx context.Context, ref, namespace string) (portforward.Destination, error)
	// files returns a path in a container, which is released when the copy has ended. write says that something is
	// copied to it.
	files(ctx context.Context, pod *v1.Pod, container, path string, write bool) (place files.Place, release func(), err error)
	// stop stops a pod and removes it. It returns the word for that.
	stop(ctx context.Context, pod *v1.Pod) (done string, err error)
	// clean removes what is left of pods that were stopped.
	clean(ctx context.Context, o cleanup) error
	close()
}

// cleanup is what remains to be removed when pods have been stopped.
type cleanup struct {
	pods []*v1.Pod
	// all also removes what pods have left that were removed before. Else it is what came from the origins.
	all     bool
	origins []string
	// namespace is the only one; "" for all, of which namespaces are those of interest.
	namespace    string
	namespaces   func() []string
	logs, images bool // are removed as well
}

// clusterFlags say on which cluster pods run, instead of this machine.
type clusterFlags struct{ kubeconfig, context string }

func (f *clusterFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Destination: &f.kubeconfig, Category: categoryCluster, Usage: "use the cluster of this `FILE`, or in-cluster", DefaultText: "this machine"},
		&cli.StringFlag{Name: "context", Destination: &f.context, Category: categoryCluster, Usage: "use the cluster of this kubeconfig `CONTEXT`", DefaultText: "this machine"},
	}
}

// onCluster says whether the command is about a cluster. Only flags say so: on a node of a cluster the
// environment may name one.
func (f *clusterFlags) onCluster() bool { return f.kubeconfig != "" || f.context != "" }

// creationFlags say what is created on a cluster besides pods.
type creationFlags struct{ createNamespace bool }

func (f *creationFlags) flags() []cli.Flag {
	return []cli.Flag{boolFlag(&f.createNamespace, categoryCluster, "create namespaces that do not exist", "create-namespace")}
}

// machineFlags are flags, besides those of some categories, that mean nothing on a cluster, of all commands or of one.
var machineFlags = []string{"cgroup-driver", "pod-pids-limit", "container-logs", "seccomp-default", "swap", "user-namespaces", "logs", "images", "ports-to", "orphans", "keep", "shutdown-grace-by-priority", "interval", "exec user", "exec workdir", "exec env"}

// machine returns this machine as a target.
func (p *program) machine(o backend.Options) *nodeTarget {
	return &nodeTarget{console: p.console, command: p.invocation.Name(), options: o}
}

// planner returns this machine as the target of a command that makes a plan.
func (p *program) planner(o backend.Options, plan *planning) *nodeTarget {
	t := p.machine(o)
	t.planning, t.images, t.pull = plan, &plan.flags.imageFlags, plan.flags.pullMode()
	return t
}

// pastTarget returns the target of a command about the pods of earlier runs.
func (p *program) pastTarget(f *pastFlags, o backend.Options) (target, error) {
	return p.target(&f.clusterFlags, p.machine(o), clusterOptions{namespace: f.podNamespace, onlyNamespace: f.podNamespace != ""})
}

// target returns the target of a command: a cluster, if the flags name one, else the machine. It refuses the
// flags on the command line that mean nothing there.
func (p *program) target(f *clusterFlags, machine *nodeTarget, o clusterOptions) (target, error) {
	for _, flag := range p.invocation.Given() {
		category := ""
		if flag, ok := flag.(cli.CategorizableFlag); ok {
			category = flag.GetCategory()
		}
		ofMachine := slices.Contains([]string{categoryEngine, categoryNetwork, categoryNode, categoryImages}, category)
		switch name := cmdline.FlagName(flag); {
		case !f.onCluster() && category == categoryCluster:
			return nil, usagef("--%s needs --kubeconfig or --context", name)
		case f.onCluster() && name == "queue":
			return nil, usagef("--queue is about this machine: on a cluster, pods wait for the scheduler, as long as --schedule-timeout says")
		case f.onCluster() && (ofMachine || slices.Contains(machineFlags, name) || slices.Contains(machineFlags, p.invocation.Name()+" "+name)):
			return nil, usagef("--%s is about this machine and has no meaning on a cluster", name)
		}
	}
	if !f.onCluster() {
		return machine, nil
	}
	config, err := cluster.Target{Kubeconfig: f.kubeconfig, Context: f.context}.Load()
	if err != nil {
		return nil, badInput(err)
	}
	config.Namespace = cmp.Or(o.namespace, config.Namespace)
	return &clusterTarget{console: p.console, config: config, o: o}, nil
}
