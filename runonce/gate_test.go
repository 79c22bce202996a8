package runonce

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
)

// door is a gate that others open, and close for good.
type door struct {
	p      *pod
	opened atomic.Bool
	ends   atomic.Pointer[condition]
	waits  condition
	asked  bool
	told   []string
}

func (d *door) open() bool {
	d.asked = true
	return d.opened.Load()
}

func (d *door) verdict() condition {
	if c := d.ends.Load(); c != nil {
		return *c
	}
	if !d.opened.Load() {
		return d.waits
	}
	return condition{}
}

func (d *door) changed(c condition) {
	if text := strings.TrimSpace(string(c.outcome) + " " + c.reason); c.ended && (len(d.told) == 0 || d.told[len(d.told)-1] != text) {
		d.told = append(d.told, text)
	}
}

// instant is a Runtime whose pods run as soon as they are synced.
type instant struct {
	calls  []string
	status v1.PodStatus
}

func (r *instant) Sync(context.Context, *v1.Pod) error {
	r.calls = append(r.calls, "sync")
	if r.status.Phase == "" {
		r.status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)}}
	}
	return nil
}

func (r *instant) Fail(_ context.Context, _ *v1.Pod, reason, message string) error {
	r.calls = append(r.calls, "fail")
	r.status = v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: message}
	return nil
}

func (r *instant) Status(context.Context, *v1.Pod) (v1.PodStatus, error) { return r.status, nil }
func (r *instant) Stop(context.Context, *v1.Pod) error                   { return nil }
func (r *instant) List(context.Context) ([]*v1.Pod, error)               { return nil, nil }
func (r *instant) Changes(context.Context, *v1.Pod) (<-chan struct{}, error) {
	return nil, errors.New("no events")
}

// TestGates: a pod starts when all its gates are open, says for what it waits, and ends when others
// want that.
func TestGates(t *testing.T) {
	t.Parallel()
	const never = 0
	canceled := condition{outcome: Canceled, ended: true, reason: "DependencyFailed", message: "db failed"}
	for _, c := range []struct {
		name           string
		opens, ends    time.Duration // the first gate; the second opens a minute later
		timeout        time.Duration
		end            condition
		outcome        Outcome
		message        string
		elapsed        time.Duration
		events         []string
		calls, told    []string
		askedTheSecond bool
	}{
		{
			name: "open later", opens: time.Minute, ends: never, timeout: time.Hour,
			outcome: Running, elapsed: 2 * time.Minute, askedTheSecond: true,
			events: []string{"Waiting db", "Waiting room", "Starting", "Running"}, calls: []string{"sync"},
		},
		{
			name: "ended before that", opens: never, ends: time.Minute, timeout: time.Hour, end: canceled,
			outcome: Canceled, message: "db failed", elapsed: time.Minute,
			events: []string{"Waiting db", "Canceled DependencyFailed"}, told: []string{"Canceled DependencyFailed"},
		},
		{
			name: "ended while it waits for the second", opens: time.Second, ends: time.Minute, timeout: time.Hour, end: canceled,
			outcome: Canceled, message: "db failed", elapsed: time.Minute, askedTheSecond: true,
			events: []string{"Waiting db", "Waiting room", "Canceled DependencyFailed"}, told: []string{"Canceled DependencyFailed"},
		},
		{
			name: "ended while it runs", opens: time.Second, ends: 3 * time.Minute, timeout: time.Hour, end: failed("Broken", "others have failed"),
			outcome: Failed, message: "others have failed", elapsed: 61 * time.Second, askedTheSecond: true,
			events: []string{"Waiting db", "Waiting room", "Starting", "Running", "Failed Broken"},
			calls:  []string{"sync", "fail", "sync"}, told: []string{"Failed Broken"},
		},
		{
			name: "the run is over before", opens: never, ends: never, timeout: time.Minute,
			outcome: TimedOut, message: "the run ended before the pod was started: waiting for db", elapsed: time.Minute,
			events: []string{"Waiting db"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &instant{}
				var events []string
				r := newRun(rt, Options{Timeout: c.timeout, Progress: func(e Progress) {
					events = append(events, strings.TrimSpace(e.State+" "+e.Reason))
				}}.withDefaults())
				ctx, cancel := r.o.WithTimeout(t.Context())
				defer cancel()
				web := newPod(v1.RestartPolicyAlways, nil, "a")
				web.Name = "web"
				results := []Result{{Pod: web}}
				p := r.podOf(admit.Decision{Pod: web}, &results[0])
				first := &door{p: p, waits: condition{reason: "db", message: "waiting for db"}}
				second := &door{p: p, waits: condition{reason: "room", message: "waiting for room"}}
				p.gates = gates{first, second}
				r.pods, r.total = []*pod{p}, 1
				if c.outcome == Failed {
					r.total++ // the run waits for another one, too
				}
				at := func(after time.Duration, do func()) {
					if after != never {
						time.AfterFunc(after, func() { do(); p.wake() })
					}
				}
				at(c.opens, func() { first.opened.Store(true) })
				at(c.opens+time.Minute, func() { second.opened.Store(true) })
				at(c.ends, func() { first.ends.Store(&c.end) })
				r.converge(ctx)
				r.finish(ctx, context.Cause(ctx))
				res := results[0]
				for _, d := range []string{
					cmp.Diff(c.outcome, res.Outcome), cmp.Diff(c.message, res.Message), cmp.Diff(c.elapsed, res.Elapsed),
					cmp.Diff(c.events, events), cmp.Diff(c.calls, rt.calls), cmp.Diff(c.told, first.told), cmp.Diff(c.askedTheSecond, second.asked),
				} {
					if d != "" {
						t.Error(d)
					}
				}
			})
		})
	}
}
