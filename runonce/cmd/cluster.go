package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cluster"
)

// defaultScheduleTimeout is long enough for a cluster that preempts or starts a node.
const defaultScheduleTimeout = time.Minute

var (
	_ runonce.Runtime = (*cluster.Pods)(nil)
	_ runonce.Eventer = (*cluster.Pods)(nil)
	_ runonce.Logs    = (*cluster.Pods)(nil)
)

// clusterFlags say on which cluster pods run, instead of this machine.
func clusterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Category: categoryCluster, Usage: "use the cluster of this `FILE`, or in-cluster", DefaultText: "this machine"},
		&cli.StringFlag{Name: "context", Category: categoryCluster, Usage: "use the cluster of this kubeconfig context", DefaultText: "this machine"},
	}
}

// creationFlags say how pods are created on a cluster.
func creationFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag(categoryCluster, "create namespaces that do not exist", "create-namespace"),
		&cli.DurationFlag{
			Name: "schedule-timeout", Category: categoryCluster, Value: defaultScheduleTimeout,
			Usage: "reject a pod that has no node after this `DURATION`",
		},
	}
}

// onCluster says whether the command is about a cluster. Only flags say so: on a node of a cluster the
// environment may name one.
func onCluster(c *cli.Context) bool { return c.String("kubeconfig") != "" || c.String("context") != "" }

// machineFlags are flags, besides those of some categories, that mean nothing on a cluster.
var machineFlags = []string{"cgroup-driver", "pod-pids-limit", "logs", "images"}

// loadCluster reads the kubeconfig, if the command is about a cluster, and refuses flags that mean
// nothing then.
func (p *program) loadCluster(c *cli.Context) error {
	if !onCluster(c) {
		for _, f := range creationFlags() {
			if name := cmdline.FlagName(f); p.settings.Given(c, name) {
				return usagef("--%s needs --kubeconfig or --context", name)
			}
		}
		return nil
	}
	if c.Command.Name == "watch" {
		return usagef("watch runs pods on this machine only: on a cluster, a Deployment keeps pods running")
	}
	for _, f := range c.Command.Flags {
		category := ""
		if f, ok := f.(cli.CategorizableFlag); ok {
			category = f.GetCategory()
		}
		name := cmdline.FlagName(f)
		local := slices.Contains([]string{categoryEngine, categoryNetwork, categoryNode, categoryImages}, category) || slices.Contains(machineFlags, name)
		if local && p.settings.Given(c, name) {
			return usagef("--%s is about this machine and has no meaning on a cluster", name)
		}
	}
	config, err := cluster.Target{Kubeconfig: c.String("kubeconfig"), Context: c.String("context")}.Load()
	if err != nil {
		return badInput(err)
	}
	p.cluster = &config
	return nil
}

// openCluster connects to the cluster. The namespaces are of interest when the user may not see all. The
// caller calls end when it does not need it any more.
func (p *program) openCluster(c *cli.Context, trace *runonce.Trace, namespaces func() []string) (pods *cluster.Pods, end func(), err error) {
	// It keeps working after an interrupt, since pods may have to be removed then.
	ctx, end := context.WithCancel(context.WithoutCancel(c.Context))
	defer p.display.Wait("waiting for the cluster")()
	o := cluster.Options{
		ScheduleTimeout: c.Duration("schedule-timeout"), Log: p.log,
		Namespaces: func() []string { return distinctNames(namespaces()) }, Namespace: p.cluster.Namespace,
	}
	if trace != nil {
		o.Trace = trace.Record
	}
	stop := context.AfterFunc(c.Context, end) // only while it connects
	defer stop()
	if pods, err = cluster.Open(ctx, *p.cluster, o); err != nil {
		end()
		return nil, nil, unusable(fmt.Errorf("cluster: %w", err))
	}
	return pods, end, nil
}

// namespacesOf returns the namespaces of pods.
func namespacesOf(pods []*v1.Pod) []string {
	all := make([]string, 0, len(pods))
	for _, pod := range pods {
		all = append(all, pod.Namespace)
	}
	return all
}

// distinctNames returns the names, sorted and each once.
func distinctNames(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// objectsOf returns the objects of the input that are not pods.
func objectsOf(set *manifests.Set) []cluster.Object {
	var objects []cluster.Object
	for _, o := range set.Objects() {
		if o, ok := o.(cluster.Object); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// admission is what a cluster says about an input, and the plan that follows.
type admission struct {
	*cluster.Admission
	c       *cli.Context
	running []*v1.Pod
	nodes   []*v1.Node
	set     *manifests.Set
}

// judge asks the cluster about the input.
func (p *program) judge(c *cli.Context, pods *cluster.Pods, set *manifests.Set) (*admission, error) {
	defer p.display.Wait("waiting for the cluster to judge the pods")()
	a := &admission{c: c, set: set}
	var err error
	if a.running, err = pods.List(c.Context); err != nil {
		return nil, unusable(err)
	}
	if a.nodes, err = pods.Nodes(c.Context); err != nil {
		return nil, unusable(err)
	}
	// What runs already need not be judged.
	var added []*v1.Pod
	for _, d := range a.plan().Decisions {
		if d.Verdict == admit.Admitted && !d.Running {
			added = append(added, d.Pod)
		}
	}
	a.Admission, err = pods.Judge(c.Context, added, objectsOf(set), c.Bool("create-namespace"))
	return a, refusal(err)
}

// refusal returns the error of an admission.
func refusal(err error) error {
	switch object := (cluster.ObjectError{}); {
	case err == nil:
		return nil
	case errors.As(err, &object):
		return badInput(err)
	}
	return unusable(err)
}

// plan makes the plan from what the cluster has said so far.
func (a *admission) plan() admit.Plan {
	refused := map[types.UID]admit.Reason{}
	if a.Admission != nil {
		for _, pod := range a.set.Pods {
			if message := admit.Unschedulable(a.asCreated(pod), a.nodes); message != "" {
				refused[pod.UID] = admit.Reason{Reason: v1.PodReasonUnschedulable, Message: message}
			}
		}
		for uid, r := range a.Refused() {
			refused[uid] = admit.Reason(r)
		}
	}
	o := admit.Options{Refused: refused, Prune: prune(a.c, a.set, true), Rerun: a.c.Bool("rerun")}
	return admit.Decide(&v1.Node{}, a.running, a.set.Pods, o)
}

// asCreated returns the pod as the server would create it. One that it has not judged yet may still get any
// toleration.
func (a *admission) asCreated(pod *v1.Pod) *v1.Pod {
	if accepted := a.Accepted()[pod.UID]; accepted != nil {
		return accepted
	}
	pod = pod.DeepCopy()
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return pod
}

// prepareCluster opens the cluster and makes the plan. It creates what pods need that are admitted.
func (p *program) prepareCluster(c *cli.Context, set *manifests.Set, l *launch) (admit.Plan, error) {
	pods, end, err := p.openCluster(c, &l.trace, func() []string { return namespacesOf(set.Pods) })
	if err != nil {
		return admit.Plan{}, err
	}
	l.runtime, l.logs, l.close, l.lost = pods, pods, end, pods.Lost
	l.instances = ofCluster(pods, time.Now())
	a, err := p.judge(c, pods, set)
	if err != nil {
		return admit.Plan{}, err
	}
	plan := a.plan()
	if len(plan.Admitted()) == 0 {
		return plan, nil
	}
	if c.Bool("rm") {
		l.finish = a.Undo
	}
	if err := a.Prepare(c.Context); err != nil {
		return plan, refusal(errors.Join(err, l.finish(context.WithoutCancel(c.Context))))
	}
	return a.plan(), nil
}

// planCluster plans for the cluster.
func (p *program) planCluster(c *cli.Context, set *manifests.Set) (report.Plan, error) {
	pods, end, err := p.openCluster(c, nil, func() []string { return namespacesOf(set.Pods) })
	if err != nil {
		return report.Plan{}, err
	}
	defer end()
	a, err := p.judge(c, pods, set)
	if err != nil {
		return report.Plan{}, err
	}
	document := report.NewPlan(a.plan())
	present, err := pods.PodsOfNodes(c.Context)
	if err != nil {
		return document, unusable(err)
	}
	for _, node := range a.nodes {
		used := admit.Decide(node, present[node.Name], nil, admit.Options{Refused: map[types.UID]admit.Reason{}})
		document.Nodes = append(document.Nodes, report.NodeOf(used))
	}
	return document, nil
}

// listCluster returns the pods on the cluster.
func (p *program) listCluster(c *cli.Context) ([]*v1.Pod, error) {
	pods, end, err := p.openCluster(c, nil, func() []string { return nil })
	if err != nil {
		return nil, err
	}
	defer end()
	p.noticeSeen(pods)
	return pods.List(c.Context)
}

// noticeSeen says that the user does not see all pods, if so.
func (p *program) noticeSeen(pods *cluster.Pods) {
	if names := pods.Seen(); names != nil {
		p.notice("only pods of these namespaces can be seen: " + strings.Join(names, ", "))
	}
}

// logsCluster prints a log of a pod on the cluster.
func (p *program) logsCluster(c *cli.Context) error {
	ref := c.Args().First()
	pods, end, err := p.openCluster(c, nil, func() []string { return namespacesIn(ref) })
	if err != nil {
		return err
	}
	defer end()
	all, err := pods.List(c.Context)
	if err != nil {
		return unusable(err)
	}
	named := only(all, func(pod *v1.Pod) bool { return isNamed(ref, pod.Namespace, pod.Name) })
	switch names := fullNames(named); {
	case len(names) == 0:
		return usagef("no pod %q on the cluster; see %q", ref, "runonce ps")
	case len(names) > 1:
		return usagef("pod %q is in several namespaces: give one of %s", ref, strings.Join(names, ", "))
	}
	mark := runtime.LogMark(named[0])
	container, err := p.chooseContainer(c, mark, slices.Concat(mark.Containers, mark.Init))
	if err != nil {
		return err
	}
	o := cluster.LogOptions{
		Container: container, Previous: c.Bool("previous"), Follow: c.Bool("follow"),
		Tail: tailOf(c), Since: c.Duration("since"), Timestamps: c.Bool("timestamps"),
	}
	err = pods.Logs(c.Context, named[0].Namespace, named[0].Name, o, p.io.Stdout)
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	return err
}

// namespacesIn returns the namespace of NAMESPACE/POD, none of any other text.
func namespacesIn(name string) []string {
	if namespace, _, ok := strings.Cut(name, "/"); ok && namespace != "" {
		return []string{namespace}
	}
	return nil
}

// namespacesOfArgs returns the namespaces of what the arguments of down name.
func (p *program) namespacesOfArgs(c *cli.Context) []string {
	var all []string
	for _, arg := range c.Args().Slice() {
		if !isPath(arg) {
			all = append(all, namespacesIn(arg)...)
			continue
		}
		set, _ := manifests.ReadPaths(c.Context, []string{arg}, p.downOptions(c)) // errors are for selectPods
		for name := range namesOf(set) {
			all = append(all, namespacesIn(name)...)
		}
	}
	return all
}

// downCluster stops pods on the cluster, and removes the objects of the same paths.
func (p *program) downCluster(c *cli.Context) error {
	namespaces := sync.OnceValue(func() []string { return p.namespacesOfArgs(c) })
	pods, end, err := p.openCluster(c, nil, namespaces)
	if err != nil {
		return err
	}
	defer end()
	all, err := pods.List(c.Context)
	if err != nil {
		return unusable(err)
	}
	wanted, conclude, err := p.wantedPods(c, all)
	if c.Bool("all") || len(wanted) == 0 {
		p.noticeSeen(pods)
	}
	if err != nil {
		return err
	}
	err = p.stopAll(c.Context, wanted, "removed", pods.Stop)
	origins := origins(c)
	visible := func() []string {
		return distinctNames(slices.Concat(namespacesOf(all), namespaces(), []string{p.cluster.Namespace}))
	}
	removed, rerr := pods.RemoveObjects(c.Context, visible, func(o metav1.Object) bool {
		return c.Bool("all") || slices.ContainsFunc(origins, func(origin string) bool {
			return podspec.CameFrom(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: o.GetAnnotations()}}, origin)
		})
	})
	for _, o := range removed {
		_, werr := fmt.Fprintln(p.io.Stdout, o, "removed")
		rerr = errors.Join(rerr, werr)
	}
	return p.afterError(errors.Join(err, rerr), conclude())
}
