package containerd

import (
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

func TestContainerStoreTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newContainerStore()
	s := &subscriber{wake: make(chan struct{}, 1)}
	c.subs[s] = struct{}{}
	c.put(engine.Container{ID: "a", PodUID: "p", Attempt: 2, State: engine.StateCreated, CreatedAt: begin})
	for range 2 {
		c.started("a", begin.Add(time.Second), 7)
	}
	for range 2 {
		c.outOfMemory("a")
	}
	end := protocol.Record{ContainerID: "a", ExitCode: 137, FinishedAt: begin.Add(2 * time.Second)}
	if !c.exited(end) || c.exited(end) {
		t.Error("an exit is news once")
	}
	c.started("a", begin, 7)
	c.lost("a", begin)
	want := []engine.Event{
		{Type: engine.EventStarted, ContainerID: "a", PodUID: "p"},
		{Type: engine.EventOOM, ContainerID: "a", PodUID: "p"},
		{Type: engine.EventExited, ContainerID: "a", PodUID: "p"},
	}
	if diff := cmp.Diff(want, s.queue); diff != "" {
		t.Error(diff)
	}
	got, ended, ok := c.get("a")
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

func TestContainerStoreOutOfMemoryAfterTheExit(t *testing.T) {
	t.Parallel()
	c := newContainerStore()
	c.put(engine.Container{ID: "a", State: engine.StateCreated})
	c.started("a", time.Now(), 7)
	c.exited(protocol.Record{ContainerID: "a", ExitCode: 137, FinishedAt: time.Now()})
	c.outOfMemory("a")
	if got, _, _ := c.get("a"); !got.Exit.OOMKilled {
		t.Errorf("%+v", got.Exit)
	}
}

// TestContainerStoreKilledBeforeStart: a container that another process creates, kills and
// creates again has not exited, but nobody waits for it any longer.
func TestContainerStoreKilledBeforeStart(t *testing.T) {
	t.Parallel()
	c := newContainerStore()
	s := &subscriber{wake: make(chan struct{}, 1)}
	c.subs[s] = struct{}{}
	c.put(engine.Container{ID: "a", State: engine.StateCreated, CreatedAt: time.Now()})
	for range 2 {
		if c.exited(protocol.Record{ContainerID: "a", ExitCode: 137, FinishedAt: time.Now()}) {
			t.Error("it has exited")
		}
	}
	got, ended, _ := c.get("a")
	if told := s.queue; got.State != engine.StateCreated || len(told) != 0 {
		t.Errorf("%+v, told %v", got, told)
	}
	select {
	case <-ended:
	default:
		t.Error("the end is not told")
	}
}

func TestContainerStoreUnknownContainers(t *testing.T) {
	t.Parallel()
	c := newContainerStore()
	c.started("a", time.Now(), 7)
	c.outOfMemory("a")
	c.lost("a", time.Now())
	c.remove("a")
	if c.exited(protocol.Record{ContainerID: "a"}) {
		t.Error("the exit of an unknown container is no news")
	}
	if all := c.list(""); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestContainerStoreWakesThoseWhoWaitForARemovedOne(t *testing.T) {
	t.Parallel()
	c := newContainerStore()
	for _, state := range []engine.State{engine.StateCreated, engine.StateRunning, engine.StateExited, engine.StateUnknown} {
		c.put(engine.Container{ID: "a", State: state})
		_, ended, _ := c.get("a")
		c.remove("a")
		select {
		case <-ended:
		default:
			t.Errorf("%s: the end is not told", state)
		}
	}
}

func TestContainerStoreListIsInOrderAndACopy(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newContainerStore()
	c.put(engine.Container{ID: "c", PodUID: "p", CreatedAt: at, Labels: map[string]string{"k": "v"}})
	c.put(engine.Container{ID: "b", PodUID: "q", CreatedAt: at.Add(-time.Second)})
	c.put(engine.Container{ID: "a", PodUID: "p", CreatedAt: at})
	for pod, want := range map[string][]string{"": {"b", "a", "c"}, "p": {"a", "c"}, "q": {"b"}, "none": nil} {
		var got []string
		for _, one := range c.list(pod) {
			got = append(got, one.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", pod, diff)
		}
	}
	c.list("p")[1].Labels["k"] = "changed"
	if got, _, _ := c.get("c"); got.Labels["k"] != "v" {
		t.Error("the caller changed the store")
	}
}
