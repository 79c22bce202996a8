package cmd

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/record"
)

// replan makes a plan for the manifests. It is the turn of the target's run, and nothing of the plan
// before is carried out any more: what the new plan does not see must not start.
func (c *watchCommand) replan(ctx context.Context, set *manifests.Set) error {
	planned, plan, err := c.decide(ctx, set)
	if err != nil {
		return err
	}
	if err := c.target.commit(ctx, planned, plan); err != nil {
		return err
	}
	c.current, c.invalid = plan, invalidResults(set)
	c.display.Plan(plan.Admitted())
	c.tell(planned)
	c.beginTrials(plan, planned)
	return nil
}

// decide makes the plan, and returns the manifests for which it is: images have the digests that are known, and former
// definitions are in the place of those that have failed or that the node rejects.
func (c *watchCommand) decide(ctx context.Context, set *manifests.Set) (*manifests.Set, admit.Plan, error) {
	for {
		planned := set.Copy()
		if err := c.newest.fix(planned); err != nil {
			return nil, admit.Plan{}, err
		}
		c.rollbacks.apply(planned)
		plan, err := c.target.decide(ctx, planned)
		if err != nil || !c.rollbacks.refuse(plan) {
			return planned, plan, err
		}
	}
}

// tell says what there is to say about the pods of a new plan, and keeps it for their results. It has former definitions
// find their objects.
func (c *watchCommand) tell(planned *manifests.Set) {
	before := c.options.Notes
	c.options.Notes = map[types.UID]runonce.Note{}
	objects := map[types.UID]*manifests.Set{}
	for _, pod := range planned.Pods {
		note, kind := c.newest.noteOn(pod), v1.EventTypeNormal
		told := before[pod.UID] == note
		if failed, own, ok := c.rollbacks.standsIn(pod); ok {
			note, kind, told = runonce.Note{Reason: runonce.ReasonRolledBack, Message: failed.message()}, v1.EventTypeWarning, failed.told
			objects[pod.UID] = own
			if !told {
				c.log.Warn("the pod is rolled back", "pod", podspec.FullName(pod), "reason", failed.reason, "error", failed.why)
			}
		}
		if note == (runonce.Note{}) {
			continue
		}
		if c.options.Notes[pod.UID] = note; !told {
			c.target.pods.Record(pod, podevent.New(kind, note.Reason, "", note.Message))
		}
	}
	c.objects.former.Store(&objects)
}

// beginTrials notes which pods of the plan are tried, also in their records, for a watch after this one.
func (c *watchCommand) beginTrials(plan admit.Plan, planned *manifests.Set) {
	if !c.rollback {
		return
	}
	for pod, former := range c.rollbacks.begin(plan, planned) {
		c.setFormer(pod, former)
	}
	c.target.want(slices.Concat(planned.Pods, c.rollbacks.formers()))
}

// setFormer records the definition that the pod has replaced, nil once the pod has reached its goal.
func (c *watchCommand) setFormer(pod, former *v1.Pod) {
	_, err := c.target.records.Update(pod.UID, func(p *record.Pod) error {
		p.Former = former
		return nil
	})
	if err != nil {
		c.log.Warn("could not record the former definition of the pod; only this process can roll it back", "pod", podspec.FullName(pod), "error", err)
	}
}

// learn finds out with which definitions the pods have reached their goal in earlier runs, and which digests their images
// have had.
func (c *watchCommand) learn(ctx context.Context, set *manifests.Set) error {
	pods, err := c.target.list(ctx, nil)
	if err != nil {
		return err
	}
	names := map[types.NamespacedName]bool{}
	for _, pod := range set.Pods {
		names[podspec.NameOf(pod)] = true
	}
	pods = only(pods, func(pod *v1.Pod) bool { return names[podspec.NameOf(pod)] })
	c.newest.learn(pods)
	for _, pod := range pods {
		r, err := c.target.records.Load(pod.UID)
		if err != nil || !c.rollback {
			continue // it was removed meanwhile
		}
		switch {
		case r.Former != nil:
			c.rollbacks.learn(r.Former, set)
		case podspec.Condition(pod.Status, v1.PodReady).Status == v1.ConditionTrue,
			r.Outcome != nil && runonce.Outcome(r.Outcome.Outcome).AtGoal():
			c.rollbacks.learn(r.Pod, set)
		}
	}
	return nil
}

// follow notes what becomes of pods that are tried, before that is shown.
func (c *watchCommand) follow(show func(runonce.Progress)) func(runonce.Progress) {
	return func(e runonce.Progress) {
		if c.rollbacks.note(e) {
			c.setFormer(e.Pod, nil)
		}
		show(e)
	}
}

// again returns a change of what the manifests, which have not changed, stand for.
func (c *watchCommand) again(ctx context.Context) *change {
	next, err := c.prepare(ctx, c.objects.set.Load().Copy())
	if err != nil {
		c.printUnchanged(ctx, err)
		return nil
	}
	return next
}
