package mirror_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// slowly is an engine that removes one container after the other, so that a client sees all that is in between.
type slowly struct {
	*enginetest.Engine
	mu   sync.Mutex
	look func()
}

func (e *slowly) Remove(ctx context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	err := e.Engine.Remove(ctx, id)
	e.look()
	return err
}

// TestStopping: a pod that is being stopped runs until its containers have ended, and goes as they were last, although
// they are removed before it.
func TestStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newMachine(t)
		n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
			takes := map[string]time.Duration{"c0": 3 * time.Second, "c1": 6 * time.Second}[c.Name]
			return enginetest.Behavior{Runs: true, HandlesTerm: true, TermAfter: takes, Code: 7}
		}
		m := n.mirror(t, &spy{})
		f := follow(t, m, mirror.Pods)
		looks := 0
		p := n.processOn(t, &slowly{Engine: n.engine, look: func() {
			looks++
			m.Mark("uid-web") // as the engine does, in a moment
			must(t, m.Sync(t.Context()))
		}})
		web := p.start(t, newPod("web", "sleep", "sleep"))
		want(t, "started", f.changes(), "ADDED web Running runs,runs")
		go m.Follow(t.Context())
		var deleted time.Time
		var stopping sync.WaitGroup
		stopping.Go(func() { must(t, p.Stop(t.Context(), web)) })
		for i, expect := range []string{"web stopping Running runs,runs", "web stopping Running 7,runs"} {
			time.Sleep(2 * time.Second)
			want(t, "while it stops", list(t, m, mirror.Pods), expect)
			pod, _, err := m.FindPod(t.Context(), "default", "web")
			must(t, err)
			want(t, "reason", pod.Status.Reason+pod.Status.Message, "")
			want(t, "grace period", *pod.DeletionGracePeriodSeconds, 30)
			if i == 0 {
				deleted = pod.DeletionTimestamp.Time
			}
			want(t, "time of the stop", pod.DeletionTimestamp.Time, deleted)
		}
		stopping.Wait()
		want(t, "looks while containers are removed", looks, 4)
		want(t, "changes", f.changes(), strings.Join([]string{
			"MODIFIED web stopping Running runs,runs", "MODIFIED web stopping Running 7,runs",
			"MODIFIED web stopping Failed 7,7", "DELETED web stopping Failed 7,7",
		}, "\n"))
		p.start(t, web)
		want(t, "started again", list(t, m, mirror.Pods), "web Running runs,runs")
	})
}

// TestStoppingEnded: a pod that has ended stays as it has, also while it is removed.
func TestStoppingEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newMachine(t)
		m := n.mirror(t, &spy{})
		f := follow(t, m, mirror.Pods)
		p := n.processOn(t, &slowly{Engine: n.engine, look: func() { must(t, m.Sync(t.Context())) }})
		job := p.start(t, newPod("job", "exit 0", "exit 0"))
		synctest.Wait()
		want(t, "ended", f.changes(), "ADDED job Succeeded 0,0")
		must(t, p.Stop(t.Context(), job))
		want(t, "removed", f.changes(), "MODIFIED job stopping Succeeded 0,0\nDELETED job stopping Succeeded 0,0")
	})
}

// TestStoppedBefore: a pod that was removed and started again is not being stopped any more, although nobody has looked
// in between.
func TestStoppedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newMachine(t)
		p, m := n.process(t), n.mirror(t, &spy{})
		web := p.start(t, newPod("web", "sleep"))
		must(t, p.records.Stop(web.UID))
		want(t, "stopping", list(t, m, mirror.Pods), "web stopping Running runs")
		must(t, p.Stop(t.Context(), web))
		p.start(t, web)
		want(t, "started again", list(t, m, mirror.Pods), "web Running runs")
	})
}
