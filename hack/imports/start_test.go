package imports_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// initBudget is what the packages of the program may allocate, in bytes, before it does anything:
// now 3.60 million, of which Kubernetes' features and metrics are 0.9 and image references 0.4.
const initBudget = 3_700_000

// TestStart: every command pays for the initialization of all packages.
func TestStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runonce")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), path, "help")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1,gctrace=1", "GOGC=70")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &trace)
	}
	checkTrace(t, trace.String())
}

// checkTrace checks what the runtime has printed about the initialization of packages.
func checkTrace(t *testing.T, trace string) {
	t.Helper()
	total, packages := 0, 0
	var last, collected time.Duration // since the start of the process
	for line := range strings.Lines(trace) {
		f := strings.Fields(line)
		switch {
		case len(f) == 11 && f[0] == "init": // init PACKAGE @7.4 ms, 2.2 ms clock, 550304 bytes, 6897 allocs
			n, err := strconv.Atoi(f[7])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			total, packages, last = total+n, packages+1, duration(t, f[2][1:]+"ms")
		case len(f) > 2 && f[0] == "gc" && collected == 0: // gc 1 @0.027s ...
			collected = duration(t, f[2][1:])
		}
	}
	// The runtime rounds its times to milliseconds.
	if collected > 0 && collected+time.Millisecond < last {
		t.Errorf("a garbage collection after %s, packages are initialized until %s", collected, last)
	}
	if packages < 100 {
		t.Fatalf("only %d packages in %q", packages, trace)
	}
	if total > initBudget {
		t.Errorf("the packages allocate %d bytes, the budget is %d: GODEBUG=inittrace=1 shows which", total, initBudget)
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
