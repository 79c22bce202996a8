package cache

import (
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/shim/handoff"
)

func TestCacheTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := New()
	s := newSubscriber()
	c.subscribe(s)
	c.Put(engine.Container{ID: "a", PodUID: "p", Attempt: 2, State: engine.StateCreated, CreatedAt: begin})
	for range 2 {
		c.Started("a", begin.Add(time.Second), 7)
	}
	for range 2 {
		c.OOM("a")
	}
	end := handoff.Record{ContainerID: "a", ExitCode: 137, FinishedAt: begin.Add(2 * time.Second)}
	if !c.Exited(end) || c.Exited(end) {
		t.Error("an exit is news once")
	}
	c.Started("a", begin, 7)
	c.Lost("a", begin)
	want := []engine.Event{
		{Type: engine.EventStarted, ContainerID: "a", PodUID: "p"},
		{Type: engine.EventOOM, ContainerID: "a", PodUID: "p"},
		{Type: engine.EventExited, ContainerID: "a", PodUID: "p"},
	}
	if diff := cmp.Diff(want, s.take()); diff != "" {
		t.Error(diff)
	}
	got, ended, ok := c.Get("a")
	if !ok {
		t.Fatal("it is gone")
	}
	exit := engine.Exit{
		ContainerID: "a", Attempt: 2, ExitCode: 137, OOMKilled: true,
		StartedAt: begin.Add(time.Second), FinishedAt: begin.Add(2 * time.Second),
	}
	if diff := cmp.Diff(exit, got.Exit); diff != "" {
		t.Error(diff)
	}
	select {
	case <-ended:
	default:
		t.Error("the end is not told")
	}
}

func TestCacheOutOfMemoryAfterTheExit(t *testing.T) {
	t.Parallel()
	c := New()
	c.Put(engine.Container{ID: "a", State: engine.StateCreated})
	c.Exited(handoff.Record{ContainerID: "a", ExitCode: 137, FinishedAt: time.Now()})
	c.OOM("a")
	if got, _, _ := c.Get("a"); !got.Exit.OOMKilled {
		t.Errorf("%+v", got.Exit)
	}
}

func TestCacheUnknownContainers(t *testing.T) {
	t.Parallel()
	c := New()
	c.Started("a", time.Now(), 7)
	c.OOM("a")
	c.Lost("a", time.Now())
	c.Remove("a")
	if c.Exited(handoff.Record{ContainerID: "a"}) {
		t.Error("the exit of an unknown container is no news")
	}
	if all := c.List(""); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestCacheWakesThoseWhoWaitForARemovedOne(t *testing.T) {
	t.Parallel()
	c := New()
	for _, state := range []engine.State{engine.StateCreated, engine.StateRunning, engine.StateExited, engine.StateUnknown} {
		c.Put(engine.Container{ID: "a", State: state})
		_, ended, _ := c.Get("a")
		c.Remove("a")
		select {
		case <-ended:
		default:
			t.Errorf("%s: the end is not told", state)
		}
	}
}

func TestCacheListIsInOrderAndACopy(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := New()
	c.Put(engine.Container{ID: "c", PodUID: "p", CreatedAt: at, Labels: map[string]string{"k": "v"}})
	c.Put(engine.Container{ID: "b", PodUID: "q", CreatedAt: at.Add(-time.Second)})
	c.Put(engine.Container{ID: "a", PodUID: "p", CreatedAt: at})
	for pod, want := range map[string][]string{"": {"b", "a", "c"}, "p": {"a", "c"}, "q": {"b"}, "none": nil} {
		var got []string
		for _, one := range c.List(pod) {
			got = append(got, one.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", pod, diff)
		}
	}
	c.List("p")[1].Labels["k"] = "changed"
	if got, _, _ := c.Get("c"); got.Labels["k"] != "v" {
		t.Error("the caller changed the cache")
	}
}
