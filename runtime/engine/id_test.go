package engine_test

import (
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/engine"
)

func TestContainerID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63)
	ids := []string{
		engine.ContainerID("u1", "web", 0), engine.ContainerID("u1", "web", 1), engine.ContainerID("u2", "web", 0), engine.ContainerID("u1", "job", 0),
		engine.ContainerID("u1", long, 0), engine.ContainerID("u1", long[:62]+"m", 123456),
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if len(id) > 76 || seen[id] {
			t.Errorf("ID %q is too long or not unique", id)
		}
		seen[id] = true
	}
	if again := engine.ContainerID("u1", "web", 0); again != ids[0] {
		t.Errorf("ID changed from %q to %q", ids[0], again)
	}
}
