package containerd_test

import (
	"testing"

	"github.com/runonce/runonce/runtime/engine"
)

// TestStartedElsewhere: two engines of one containerd, as two processes have them; a
// container that one starts after the other has listed them is neither replaced by the other
// nor unknown to it.
func TestStartedElsewhere(t *testing.T) {
	p := newTestDirs(t)
	first, second := p.openWithBox(t), p.open(t, t.Context())
	t.Cleanup(func() { _ = second.Close() })
	c := p.box(t, "both", "sleep")
	if err := first.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	before := eventually(t, first, c.ID, engine.StateRunning)
	if err := second.Start(t.Context(), c); err == nil {
		t.Error("started what runs already")
	}
	if got, ok := find(t, second, c.ID); !ok || got.State != engine.StateRunning {
		t.Errorf("the second engine knows of %+v (found: %t) after it was told", got, ok)
	}
	if after := eventually(t, first, c.ID, engine.StateRunning); !after.StartedAt.Equal(before.StartedAt) {
		t.Errorf("replaced: started at %v, then at %v", before.StartedAt, after.StartedAt)
	}
}
