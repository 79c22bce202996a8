package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"
)

func TestContainerID(t *testing.T) {
	t.Parallel()
	long, start := strings.Repeat("n", 63), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	ids := []string{
		engine.ContainerID("u1", "web", start, 0), engine.ContainerID("u1", "web", start, 1), engine.ContainerID("u2", "web", start, 0),
		engine.ContainerID("u1", "job", start, 0), engine.ContainerID("u1", "web", start.Add(time.Second), 0),
		engine.ContainerID("u1", long, start, 0), engine.ContainerID("u1", long[:62]+"m", start.AddDate(100, 0, 0), 123456),
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if len(id) > 76 || seen[id] {
			t.Errorf("ID %q is too long or not unique", id)
		}
		seen[id] = true
	}
	if again := engine.ContainerID("u1", "web", start, 0); again != ids[0] {
		t.Errorf("ID changed from %q to %q", ids[0], again)
	}
}
