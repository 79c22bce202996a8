package runtime

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestCountCrashes(t *testing.T) {
	t.Parallel()
	p := &Pods{memories: map[types.UID]*memory{}, images: newImagePuller(&Options{}, nil)}
	exited := func(id string, ran time.Duration) map[string]engine.Container {
		return map[string]engine.Container{"a": {ID: id, Name: "a", State: engine.StateExited, Exit: engine.Exit{
			StartedAt: epoch, FinishedAt: epoch.Add(ran),
		}}}
	}
	steps := []struct {
		id   string
		ran  time.Duration
		want int
	}{
		{"a-0", time.Second, 1},
		{"a-0", time.Second, 1}, // the same exit again
		{"a-1", time.Second, 2},
		{"a-2", 11 * time.Minute, 1},
		{"a-3", time.Second, 2},
	}
	for _, s := range steps {
		o := &podstate.Observation{Containers: exited(s.id, s.ran), Record: &record.Pod{}}
		p.remember("uid", func(m *memory) { m.recall(o) })
		if got := o.Crashes["a"]; got != s.want {
			t.Errorf("after %s ran %s: %d crashes, want %d", s.id, s.ran, got, s.want)
		}
	}
}

// What a container was killed for is remembered as long as its status shows it.
func TestKilledIsForgotten(t *testing.T) {
	t.Parallel()
	m := &memory{crashes: map[string]crash{}, killed: map[string]string{}}
	for i, id := range []string{"a-0", "a-1", "a-2", "a-3"} {
		c := engine.Container{ID: id, Name: "a", Attempt: i, State: engine.StateRunning}
		if i > 0 {
			before := fmt.Sprintf("a-%d", i-1)
			c.Last = &engine.Exit{ContainerID: before}
		}
		o := &podstate.Observation{Containers: map[string]engine.Container{"a": c}, Record: &record.Pod{}}
		m.recall(o)
		o.Probes = map[string]probe.Status{id: {Failed: probe.Liveness}}
		m.beforeKill(o, podstate.Actions{})
	}
	if got := slices.Sorted(maps.Keys(m.killed)); !slices.Equal(got, []string{"a-2", "a-3"}) {
		t.Errorf("remembered: %q", got)
	}
}

// A process that lists the pods of others now and then does not remember all that it has ever seen.
func TestForgetOthers(t *testing.T) {
	t.Parallel()
	p := &Pods{memories: map[types.UID]*memory{"gone": {}, "there": {}, "own": {synced: true}}, images: newImagePuller(&Options{}, nil)}
	there := &v1.Pod{}
	there.UID = "there"
	p.forgetOthers([]*record.Pod{{Pod: there}})
	if got := slices.Sorted(maps.Keys(p.memories)); !slices.Equal(got, []types.UID{"own", "there"}) {
		t.Errorf("remembered: %q", got)
	}
}
