package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cluster"
)

var (
	_ target = (*clusterTarget)(nil)

	_ runonce.Runtime = (*cluster.Pods)(nil)
	_ runonce.Eventer = (*cluster.Pods)(nil)
	_ runonce.Logs    = (*cluster.Pods)(nil)

	_ runonce.Refresher = (*cluster.Pods)(nil)
)

// clusterOptions are what a cluster has to know of a command.
type clusterOptions struct {
	// namespace is that of pods that name none, "" for that of the context. With onlyNamespace, pods of
	// others are of no interest.
	namespace     string
	onlyNamespace bool

	createNamespace bool
	scheduleTimeout time.Duration
	remove          bool
	planning        *planning      // of a command that makes a plan
	trace           *runonce.Trace // may be nil
}

// clusterTarget is a Kubernetes cluster.
type clusterTarget struct {
	*console
	config cluster.Config
	o      clusterOptions

	pods      *cluster.Pods // nil until it is open
	opened    time.Time
	cancel    context.CancelFunc
	admission *admission // of a run
}

func (t *clusterTarget) input(o *manifests.Options) {
	o.Cluster, o.Namespace, o.ClusterDomain = true, t.config.Namespace, "" // which its nodes know
}

// open connects to the cluster. The namespaces are of interest when the user may not see all.
func (t *clusterTarget) open(ctx context.Context, namespaces func() []string) (err error) {
	// It keeps working after an interrupt, since pods may have to be removed then.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.close() // of other namespaces
	t.opened, t.cancel = time.Now(), cancel
	defer t.display.Wait("waiting for the cluster")()
	o := cluster.Options{
		ScheduleTimeout: t.o.scheduleTimeout, Log: t.log, Namespaces: func() []string { return distinctNames(namespaces()) },
		Namespace: t.config.Namespace, Only: t.o.onlyNamespace,
	}
	if t.o.trace != nil {
		o.Trace = t.o.trace.Record
	}
	stop := context.AfterFunc(ctx, cancel) // only while it connects
	defer stop()
	if t.pods, err = cluster.Open(working, t.config, o); err != nil {
		if apierrors.IsForbidden(err) && t.o.namespace == "" {
			err = fmt.Errorf("%w: give a namespace that you may use with -n, or set that of the context", err)
		}
		return unusable(fmt.Errorf("cluster: %w", err))
	}
	t.display.Holders(t.pods.Finalizers)
	return nil
}

func (t *clusterTarget) close() {
	if t.cancel != nil {
		t.cancel()
	}
}

// ociRuntime returns nil: it is the nodes' affair.
func (*clusterTarget) ociRuntime() *report.Runtime { return nil }

func (t *clusterTarget) runtime() runonce.Runtime { return t.pods }
func (t *clusterTarget) logs() runonce.Logs       { return t.pods }

// complete: what a kubelet reports comes late.
func (t *clusterTarget) complete(o *runonce.Options) {
	if o.Settle > 0 {
		o.Settle += cluster.StatusDelay
	}
}

func (t *clusterTarget) conclude(ctx context.Context) {
	if t.admission == nil || !t.o.remove {
		return
	}
	if err := t.admission.Undo(ctx); err != nil {
		t.log.Warn("could not clean up after the run", "error", err)
	}
}

func (t *clusterTarget) lost() error {
	if t.pods == nil {
		return nil
	}
	return t.pods.Unseen()
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
	o       *clusterOptions
	running []*v1.Pod
	nodes   []*v1.Node
	set     *manifests.Set
}

// judge asks the cluster about the input.
func (t *clusterTarget) judge(ctx context.Context, set *manifests.Set) (*admission, error) {
	if err := t.open(ctx, func() []string { return namespacesOf(set.Pods) }); err != nil {
		return nil, err
	}
	defer t.display.Wait("waiting for the cluster to judge the pods")()
	for _, pod := range set.Pods {
		if pod.Annotations[podspec.AnnotationPublish] != "" {
			t.log.Warn("the annotation has no effect on a cluster: use a Service, or port-forward", "annotation", podspec.AnnotationPublish, "pod", podspec.FullName(pod))
		}
	}
	a := &admission{o: &t.o, set: set}
	var err error
	if a.running, err = t.pods.List(ctx); err != nil {
		return nil, unusable(err)
	}
	if a.nodes, err = t.pods.Nodes(ctx); err != nil {
		return nil, unusable(err)
	}
	// What runs already need not be judged.
	var added []*v1.Pod
	for _, d := range a.plan().Decisions {
		if d.Verdict == admit.Admitted && !d.Running {
			added = append(added, d.Pod)
		}
	}
	a.Admission, err = t.pods.Judge(ctx, added, objectsOf(set), t.o.createNamespace)
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
	o := admit.Options{Refused: refused, Prune: a.o.planning.scope.prunedPods(a.set), Rerun: a.o.planning.rerun, DependsOn: a.set.Dependencies(), Recreate: a.o.planning.recreate}
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

// prepare makes the plan, and creates what the pods need that are admitted.
func (t *clusterTarget) prepare(ctx context.Context, set *manifests.Set) (admit.Plan, error) {
	a, err := t.judge(ctx, set)
	if err != nil {
		return admit.Plan{}, err
	}
	plan := a.plan()
	if len(plan.Admitted()) == 0 {
		return plan, nil
	}
	t.admission = a
	if err := a.Prepare(ctx); err != nil {
		t.conclude(context.WithoutCancel(ctx))
		return plan, refusal(err)
	}
	return a.plan(), nil
}

func (t *clusterTarget) plan(ctx context.Context, set *manifests.Set) (report.Plan, error) {
	a, err := t.judge(ctx, set)
	if err != nil {
		return report.Plan{}, err
	}
	document := newPlan(a.plan(), nil)
	present, err := t.pods.PodsOfNodes(ctx)
	if err != nil {
		return document, unusable(err)
	}
	for _, node := range a.nodes {
		used := admit.Decide(node, present[node.Name], nil, admit.Options{Refused: map[types.UID]admit.Reason{}})
		document.Nodes = append(document.Nodes, report.NodeOf(used))
	}
	return document, nil
}

func (t *clusterTarget) list(ctx context.Context, namespaces func() []string) ([]*v1.Pod, error) {
	if err := t.open(ctx, namespaces); err != nil {
		return nil, err
	}
	pods, err := t.pods.List(ctx)
	if err != nil {
		return nil, unusable(err)
	}
	return pods, nil
}

// states returns the pods, whose containers the kubelets restart.
func (t *clusterTarget) states(ctx context.Context, namespaces func() []string) ([]report.PodState, error) {
	pods, err := t.list(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	t.noticeSeen()
	states := make([]report.PodState, 0, len(pods))
	for _, pod := range pods {
		states = append(states, report.PodState{Pod: pod, Watched: true})
	}
	return states, nil
}

// noticeSeen says that the user does not see all pods, if so.
func (t *clusterTarget) noticeSeen() {
	if names := t.pods.Seen(); names != nil {
		t.notice("only pods of these namespaces can be seen: " + strings.Join(names, ", "))
	}
}

// instances returns the newest instance of each container that this run has started, and the one before.
func (t *clusterTarget) instances(r *runonce.Result) []instance {
	var all []instance
	add := func(name string, started time.Time, previous bool) {
		if r.Existed && started.Before(t.opened.Truncate(time.Second)) {
			return // by an earlier run
		}
		all = append(all, instance{container: name, copy: func(ctx context.Context, w io.Writer) error {
			return t.pods.Logs(ctx, r.Pod.Namespace, r.Pod.Name, cluster.LogOptions{Container: name, Previous: previous}, w)
		}})
	}
	for _, cs := range podspec.Statuses(r.Status) {
		if last := cs.LastTerminationState.Terminated; last != nil {
			add(cs.Name, last.StartedAt.Time, true)
		}
		switch state := cs.State; {
		case state.Running != nil:
			add(cs.Name, state.Running.StartedAt.Time, false)
		case state.Terminated != nil:
			add(cs.Name, state.Terminated.StartedAt.Time, false)
		}
	}
	return all
}

func (t *clusterTarget) stop(ctx context.Context, pod *v1.Pod) (string, error) {
	return "removed", t.pods.Stop(ctx, pod)
}

// clean removes the objects that came from the same places as the pods, and prints them.
func (t *clusterTarget) clean(ctx context.Context, o cleanup) error {
	if o.all || len(o.pods) == 0 {
		t.noticeSeen()
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("removing the objects of the pods: %w", cause)
	}
	visible := func() []string {
		return distinctNames(slices.Concat(namespacesOf(o.pods), o.namespaces(), []string{t.config.Namespace}))
	}
	removed, err := t.pods.RemoveObjects(ctx, visible, func(object metav1.Object) bool {
		if o.namespace != "" && object.GetNamespace() != o.namespace {
			return false
		}
		return o.all || slices.ContainsFunc(o.origins, func(origin string) bool {
			return podspec.CameFrom(object, origin)
		})
	})
	for _, object := range removed {
		_, werr := fmt.Fprintln(t.io.Stdout, object, "removed")
		err = errors.Join(err, werr)
	}
	return err
}
