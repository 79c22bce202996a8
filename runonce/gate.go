package runonce

import (
	"context"
	"slices"
)

// gate lets a pod start, and has it end, because of others: by the rules of its Job, for example.
// A pod may have several. Each belongs to one pod, and only the goroutine that works on the pod calls
// it; what it shares with the gates of other pods needs a lock. When what open or verdict return
// may have changed, it wakes the pod.
type gate interface {
	// open says whether the pod may start; an adopted one always may. Pods ask in the order of their
	// ranks, and again when they are woken. A gate that has opened stays open until its pod has ended.
	open() bool
	// verdict is what others mean for the pod: an ended condition if it has to end, or else what it
	// waits for, with a reason and a message, if that is to be displayed.
	verdict() condition
	// changed tells that the pod has come to another stage, or to the condition; an ended one
	// is told before the pod is cleaned up, and again after that.
	changed(c condition)
}

// gates are those of a pod. It passes them one after the other: a gate is asked when those before
// it are open.
type gates []gate

func (gs gates) open() bool {
	return !slices.ContainsFunc(gs, func(g gate) bool { return !g.open() })
}

// verdict is an end if there is one, or else what the pod waits for first.
func (gs gates) verdict() (c condition) {
	for _, g := range slices.Backward(gs) {
		if v := g.verdict(); v.ended || v != (condition{}) && !c.ended {
			c = v
		}
	}
	return c
}

func (gs gates) changed(c condition) {
	for _, g := range gs {
		g.changed(c)
	}
}

// wake has a pod that waits look at its gates and its slot again. It does not block.
func (p *pod) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// condemned says whether the pod has to end because of others.
func (p *pod) condemned() bool { return p.gates.verdict().ended }

// await waits until the pod is ready or has to end. It returns false when ctx is done.
func (p *pod) await(ctx context.Context, ready func() bool) bool {
	for !ready() {
		c := p.gates.verdict()
		if c.ended {
			break
		}
		if c != (condition{}) {
			p.setCondition(c)
		}
		select {
		case <-p.woken:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// fail makes the runtime fail the pod because of others, so that later runs know of it.
func (p *pod) fail(ctx context.Context, c condition) condition {
	if !p.started() {
		return c
	}
	err := p.r.rt.Fail(ctx, p.pod, c.reason, c.message)
	if err == nil {
		err = p.refresh(ctx)
	}
	if err != nil {
		p.warn(ctx, "could not stop a pod of a failed Job", err)
		return c
	}
	if own := p.judge(); own.ended {
		return own
	}
	return c
}
