package mirror_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// TestPods: what another process does with its pods is there after a look, and before it with the engine's events.
func TestPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, s := newMachine(t), &spy{}
		p, m := n.process(t), n.mirror(t, s)
		f := follow(t, m, mirror.Pods)
		web, job := p.start(t, newPod("web", "sleep", "sleep")), p.start(t, newPod("job", "sleep"))
		want(t, "started before it runs", f.changes(), "ADDED job Running runs\nADDED web Running runs,runs")
		n.end(t, job, "c0", 3)
		synctest.Wait() // the event is lost: nobody listens yet
		go m.Follow(t.Context())
		synctest.Wait()
		want(t, "ended", f.seen(), "MODIFIED job Failed 3")
		time.Sleep(time.Second)
		n.end(t, web, "c1", 0)
		synctest.Wait()
		want(t, "a container has ended", f.seen(), "MODIFIED web Running runs,0")
		time.Sleep(time.Second)
		n.end(t, web, "c0", 0)
		synctest.Wait()
		want(t, "both have ended", f.seen(), "MODIFIED web Succeeded 0,0")
		must(t, p.Stop(t.Context(), job))
		want(t, "removed", f.changes(), "DELETED job Failed 3")
		p.start(t, newPod("job", "sleep"))
		want(t, "started again", list(t, m, mirror.Pods), "job Running runs\nweb Succeeded 0,0")

		pods, err := m.GetPods(t.Context())
		must(t, err)
		if len(pods) != 2 || pods[0].Name != "job" || pods[1].Name != "web" {
			t.Errorf("pods: %v", pods)
		}
		pod, found, err := m.FindPod(t.Context(), "default", "web")
		must(t, err)
		want(t, "found", found && pod.UID == web.UID && pod.Spec.NodeName == "node" && !pod.CreationTimestamp.IsZero(), true)
		_, found, err = m.FindPod(t.Context(), "other", "web")
		must(t, err)
		want(t, "found in another namespace", found, false)
	})
}

// TestQuiet: while nothing happens, no object gets a version, whether one looks or waits, and also if all is observed
// again.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, s := newMachine(t), &spy{}
		n.define(newService("web"), newService("other"))
		p, m := n.process(t), n.mirror(t, s)
		p.start(t, newPod("web", "sleep"))
		probed := newPod("probed", "sleep")
		probed.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/box", "exit", "1"}}}, PeriodSeconds: 1,
			TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
		}
		p.start(t, probed)
		p.start(t, newPod("ended", "exit 1"))
		crashing := newPod("crashing", "exit 2")
		crashing.Spec.RestartPolicy = v1.RestartPolicyAlways
		p.start(t, crashing)
		synctest.Wait()
		p.start(t, crashing) // which finds that it has to wait
		missing := newPod("missing", "sleep")
		missing.Spec.Containers[0].Image = "localhost/none:1"
		_ = p.Sync(t.Context(), missing)
		go m.Follow(t.Context())
		time.Sleep(5 * time.Second)
		must(t, m.Sync(t.Context()))
		version := m.Store().Version()
		for range 30 {
			must(t, m.Sync(t.Context()))
			m.Mark("")
			time.Sleep(time.Second)
		}
		changes, _, err := m.Store().Since(version)
		must(t, err)
		for _, c := range changes {
			t.Errorf("%d %s: %v, before %v", c.Version, c.Resource, c.Now, c.Before)
		}
		looks := s.looks.Load()
		time.Sleep(5*mirror.Patience + time.Second)
		if more := s.looks.Load() - looks; more != 5 {
			t.Errorf("%d looks without a reason, want 5", more)
		}
		want(t, "version", m.Store().Version(), version)
	})
}

// TestUnobservable: a pod that cannot be observed stays as it was, others do not, and it is tried again after a while.
func TestUnobservable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		var tried atomic.Int32
		n, s := newMachine(t), &spy{listed: func(_ context.Context, pod *v1.Pod) error {
			if pod.Name != "web" || !broken.Load() {
				return nil
			}
			tried.Add(1)
			return errBroken
		}}
		p, m := n.process(t), n.mirror(t, s)
		f := follow(t, m, mirror.Pods)
		web, job := p.start(t, newPod("web", "sleep")), p.start(t, newPod("job", "sleep"))
		want(t, "started", f.changes(), "ADDED job Running runs\nADDED web Running runs")
		go m.Follow(t.Context())
		time.Sleep(time.Second)
		broken.Store(true)
		n.end(t, web, "c0", 0)
		n.end(t, job, "c0", 0)
		synctest.Wait()
		if err := m.Sync(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
		if _, err := m.GetPods(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("error of all pods: %v", err)
		}
		if _, _, err := m.FindPod(t.Context(), "default", "job"); !errors.Is(err, errBroken) {
			t.Errorf("error of a pod: %v", err)
		}
		want(t, "ended", f.seen(), "MODIFIED job Succeeded 0")
		time.Sleep(time.Second)
		before := tried.Load()
		time.Sleep(3 * mirror.Patience)
		want(t, "tried again", tried.Load()-before, 3)
		want(t, "meanwhile", f.seen(), "")
		broken.Store(false)
		time.Sleep(mirror.Patience)
		want(t, "at last", f.seen(), "MODIFIED web Succeeded 0")
	})
}

// TestUnknown: what has happened while the records could not be read is seen later.
func TestUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		n, s := newMachine(t), &spy{known: func() error {
			if broken.Load() {
				return errBroken
			}
			return nil
		}}
		p, m := n.process(t), n.mirror(t, s)
		f := follow(t, m, mirror.Pods)
		web := p.start(t, newPod("web", "sleep"))
		want(t, "started", f.changes(), "ADDED web Running runs")
		go m.Follow(t.Context())
		time.Sleep(time.Second)
		broken.Store(true)
		n.end(t, web, "c0", 0)
		synctest.Wait()
		if err := m.Sync(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
		want(t, "meanwhile", f.seen(), "")
		broken.Store(false)
		want(t, "later", f.changes(), "MODIFIED web Succeeded 0")
		m.Mark("") // all of them, which may fail, too
		broken.Store(true)
		_ = m.Sync(t.Context())
		broken.Store(false)
		must(t, p.Stop(t.Context(), web))
		want(t, "removed", f.changes(), "DELETED web Succeeded 0")
	})
}

// TestRemovedMeanwhile: a pod that is removed while others are looked at goes, and is not shown as one that never ran.
func TestRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var during atomic.Pointer[func()]
		n, s := newMachine(t), &spy{listed: func(context.Context, *v1.Pod) error {
			if do := during.Swap(nil); do != nil {
				(*do)()
			}
			return nil
		}}
		p, m := n.process(t), n.mirror(t, s)
		f := follow(t, m, mirror.Pods)
		web := p.start(t, newPod("web", "sleep"))
		want(t, "started", f.changes(), "ADDED web Running runs")
		stop := func() { must(t, p.Stop(t.Context(), web)) }
		begin := func() { must(t, p.records.Stop(web.UID)) }
		for _, uid := range []types.UID{web.UID, ""} {
			during.Store(&stop)
			m.Mark(uid)
			must(t, m.Sync(t.Context()))
			want(t, "removed", f.changes(), "DELETED web Running runs")
			// One that was shown never does not appear, either.
			during.Store(&stop)
			p.start(t, web)
			must(t, m.Sync(t.Context()))
			want(t, "removed at once", f.changes(), "")
			// That it is being stopped is seen with what follows from it.
			p.start(t, web)
			want(t, "started again", f.changes(), "ADDED web Running runs")
			during.Store(&begin)
			m.Mark(uid)
			want(t, "stopping", f.changes(), "MODIFIED web stopping Running runs")
			must(t, p.Stop(t.Context(), web))
			want(t, "gone", f.changes(), "DELETED web stopping Running runs")
			p.start(t, web)
			want(t, "started again", f.changes(), "ADDED web Running runs")
		}
	})
}

// TestNames: objects follow the names of pods, which may be those of others.
func TestNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, s := newMachine(t), &spy{}
		p, m := n.process(t), n.mirror(t, s)
		p.start(t, newPod("a", "sleep"))
		time.Sleep(time.Second)
		p.start(t, newPod("b", "sleep", "sleep"))
		rename := func(uid types.UID, name string) {
			t.Helper()
			_, err := p.records.Update(uid, func(r *record.Pod) error {
				r.Pod = r.Pod.DeepCopy()
				r.Pod.Name = name
				return nil
			})
			must(t, err)
		}
		want(t, "started", list(t, m, mirror.Pods), "a Running runs\nb Running runs,runs")
		f := follow(t, m, mirror.Pods)
		rename("uid-a", "c")
		want(t, "another name", f.changes(), "DELETED a Running runs\nADDED c Running runs")
		rename("uid-a", "b")
		rename("uid-b", "c")
		want(t, "swapped", list(t, m, mirror.Pods), "b Running runs\nc Running runs,runs")
		rename("uid-b", "b")
		want(t, "both have the same", list(t, m, mirror.Pods), "b Running runs,runs")
		f = follow(t, m, mirror.Pods)
		for range 3 {
			m.Mark("uid-a")
			want(t, "only one is shown", f.changes(), "")
		}
		rename("uid-b", "c")
		want(t, "no longer", list(t, m, mirror.Pods), "b Running runs\nc Running runs,runs")
	})
}

// TestNamesBroken: a pod goes when it is removed, although another one has its name that cannot be observed.
func TestNamesBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, s := newMachine(t), &spy{listed: func(_ context.Context, pod *v1.Pod) error {
			if pod.UID == "uid-2" {
				return errBroken
			}
			return nil
		}}
		p, m := n.process(t), n.mirror(t, s)
		web := p.start(t, newPod("web", "sleep"))
		want(t, "started", list(t, m, mirror.Pods), "web Running runs")
		must(t, p.Stop(t.Context(), web))
		other := newPod("web", "sleep")
		other.UID = "uid-2"
		p.start(t, other)
		if err := m.Sync(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
		_, _, err := m.FindPod(t.Context(), "default", "web")
		want(t, "error", errors.Is(err, errBroken), true)
		_, found := m.Store().Get(mirror.Pods, types.NamespacedName{Namespace: "default", Name: "web"})
		want(t, "shown", found, false)
	})
}
