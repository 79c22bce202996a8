package cmd

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/volume"
)

// planning is what a plan for this machine depends on.
type planning struct {
	flags *podFlags
	scope scope
	rerun bool
	queue bool
	// recreate says which pods that run are replaced; nil for none.
	recreate func(*v1.Pod) bool
	once     func(*v1.Pod) bool // see admit.Options
	// users has a note on each pod for which --user-namespaces has decided.
	users map[types.UID]string
}

// planOf returns what a plan of the command depends on. What is chosen comes later.
func (f *earlierFlags) planOf(pods *podFlags, paths []string, queue bool) *planning {
	return &planning{flags: pods, scope: scope{paths, pods.recursive, f.prune}, rerun: f.rerun, queue: queue}
}

// prepare opens the engine and makes the plan, when it is this run's turn.
func (t *nodeTarget) prepare(ctx context.Context, set *manifests.Set) (admit.Plan, error) {
	if err := t.openFor(ctx, set, set); err != nil {
		return admit.Plan{}, err
	}
	if err := t.settleImages(ctx, set); err != nil {
		return admit.Plan{}, err
	}
	if err := t.enter(ctx, t.owner); err != nil {
		return admit.Plan{}, err
	}
	return t.reserve(ctx, set)
}

// reserve makes the plan and reserves the resources of its pods, while no other run plans.
func (t *nodeTarget) reserve(ctx context.Context, set *manifests.Set) (admit.Plan, error) {
	plan, err := t.decide(ctx, set)
	if err != nil {
		return plan, err
	}
	return plan, t.commit(ctx, set, plan)
}

// commit reserves the resources of the pods of a plan, which was made for the set in this turn.
func (t *nodeTarget) commit(ctx context.Context, set *manifests.Set, plan admit.Plan) error {
	if err := t.define(ctx, set); err != nil {
		return err
	}
	t.tie()
	if err := t.owner.Reserve(plan.Admitted()); err != nil {
		return unusable(err)
	}
	for _, d := range plan.Removals() {
		if err := t.owner.Revoke(d.Pod, d.By); err != nil {
			return unusable(err)
		}
	}
	// Now, since no other run plans: what has no record is gone.
	if err := t.pods.ExpireLogs(); err != nil {
		t.log.Warn("could not remove old logs", "error", err)
	}
	return nil
}

// plan plans for this machine and the pods that run on it, and adds the images that a run would pull.
func (t *nodeTarget) plan(ctx context.Context, set *manifests.Set) (none report.Plan, err error) {
	if err := t.openFor(ctx, set, set); err != nil {
		return none, err
	}
	if err := t.settleImages(ctx, set); err != nil {
		return none, err
	}
	plan, err := t.decide(ctx, set)
	if err != nil {
		return none, err
	}
	stored, err := t.storedImages(ctx)
	if err != nil {
		return none, err
	}
	document := newPlan(plan, t.planning.users)
	document.Pulls = imagesToPull(plan, stored, t.pull, t.supplied)
	document.Runtime = t.ociRuntime()
	return document, nil
}

func (t *nodeTarget) ociRuntime() *report.Runtime {
	if t.engine == nil || t.engine.Chosen().Path == "" {
		return nil
	}
	return &report.Runtime{Path: t.engine.Chosen().Path, Reason: t.engine.Chosen().Reason}
}

// decide makes the plan.
func (t *nodeTarget) decide(ctx context.Context, set *manifests.Set) (admit.Plan, error) {
	t.want(set.Pods)
	present, err := t.present(ctx)
	if err != nil {
		return admit.Plan{}, err
	}
	running := present.Running
	if err := t.publish(ctx, set.Pods, present); err != nil {
		return admit.Plan{}, err
	}
	o := t.planning.flags.admission(set)
	o.RuntimeHandlers = containerd.HandlerNames(t.planning.flags.handlers)
	o.Prune, o.Rerun, o.Once = t.planning.scope.prunedPods(set), t.planning.rerun, t.planning.once
	o.Recreate = t.planning.recreate
	o.NoNFS, o.AppArmor = !volume.HasNFS(), host.AppArmorEnabled(t.io.Machine)
	if o.Listening, err = t.listeners(t.options.PodsRoot, set.Pods, running); err != nil {
		return admit.Plan{}, err
	}
	o.Reserved, o.Queue = present.Reserved, t.planning.queue
	lacking := ""
	if t.planning.flags.userNamespaces {
		lacking = t.lacksUsers(ctx)
	}
	t.planning.users = setUsers(set.Pods, running, t.planning.flags.userNamespaces, lacking)
	o.MissingFeatures = t.engine.Unsupported(ctx, set.Pods)
	plan := admit.Decide(t.node, running, set.Pods, o)
	if err := t.engine.Check(toStart(plan, running)); err != nil {
		return plan, unusable(err)
	}
	return plan, nil
}

// present returns the pods that use this machine.
func (t *nodeTarget) present(ctx context.Context) (present admit.Present, err error) {
	// The reservations come first: pods that start meanwhile are among the running ones.
	if present.Reserved, err = t.owner.Reserved(); err != nil {
		return present, unusable(err)
	}
	present.Running, err = t.list(ctx, nil)
	return present, err
}

// reserveMore reserves the resources of pods that have waited for them, while no other run plans. The pods of the
// machine are looked at if another run has reserved some since the last time, or look is true.
func (t *nodeTarget) reserveMore(ctx context.Context, look bool, choose func(*admit.Present) []*v1.Pod) (err error) {
	others, err := t.owner.Resume(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.owner.Leave()) }()
	var present *admit.Present
	if others || look {
		found, err := t.present(ctx)
		if err != nil {
			return err
		}
		present = &found
	}
	if pods := choose(present); len(pods) > 0 {
		return t.owner.ReserveMore(pods)
	}
	return nil
}

// toStart returns the pods that are to run, except those that have ended in an earlier run.
func toStart(plan admit.Plan, running []*v1.Pod) []*v1.Pod {
	over := map[types.UID]bool{}
	for _, pod := range running {
		over[pod.UID] = podspec.Ended(pod.Status.Phase)
	}
	var pods []*v1.Pod
	for _, d := range plan.Decisions {
		if d.Runs() && !(d.Running && over[d.Pod.UID]) {
			pods = append(pods, d.Pod)
		}
	}
	return pods
}

// planOffline plans for a node that is described and may be another machine.
func (c *console) planOffline(ctx context.Context, set *manifests.Set, o *planning, running string) (none report.Plan, err error) {
	f := o.flags
	for _, flag := range []struct {
		name  string
		given bool
	}{{"offline", f.offline}, {"images-dir", len(f.dirs.values) > 0}, {"pull", f.pull != ""}} {
		if flag.given {
			return none, usagef("--%s is about the images on this machine, and has no meaning with --running, --capacity or --node", flag.name)
		}
	}
	err = c.lockImages(ctx, set, &f.fetchFlags, f.skipInvalid, func(context.Context, *v1.Pod, podspec.Image) (string, error) {
		return "", failure.Permanentf("it is not in %s, and --running, --capacity and --node use no engine to look for it", f.lock)
	})
	if err != nil {
		return none, err
	}
	node, err := c.node(ctx, f, set, c.devices(f.cdiDirs.values))
	if err != nil {
		return none, err
	}
	ao := f.admission(set)
	ao.Rerun, ao.Queue, ao.Recreate = o.rerun, o.queue, o.recreate
	if o.scope.prune {
		ao.Prune = func(*v1.Pod) bool { return true } // they count as coming from the same paths
	}
	pods, err := c.assumed(ctx, f, running)
	if err != nil {
		return none, err
	}
	users := setUsers(set.Pods, pods, f.userNamespaces, "")
	return newPlan(admit.Decide(node, pods, set.Pods, ao), users), nil
}

// assumed returns the pods of the manifests at a path, which are assumed to run.
func (c *console) assumed(ctx context.Context, f *podFlags, path string) ([]*v1.Pod, error) {
	if path == "" {
		return nil, nil
	}
	o, err := f.input(c)
	if err != nil {
		return nil, err
	}
	o.RequireDigest, o.SHA256, o.PodSecurity, o.Format = false, "", "", "" // which are about what is to run
	set, err := manifests.ReadPaths(ctx, []string{path}, o)
	if err != nil {
		return nil, badInput(err)
	}
	return set.Pods, nil
}
