package containerd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestLimitFiles: a container has a limit of open files of its own, not that of this process.
func TestLimitFiles(t *testing.T) {
	t.Parallel()
	hard := highestFileLimit()
	own := specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: 7, Hard: 8}
	core := specs.POSIXRlimit{Type: "RLIMIT_CORE", Soft: 1, Hard: 1}
	for _, tc := range []struct{ in, want []specs.POSIXRlimit }{
		{nil, []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: min(1024, hard), Hard: hard}}},
		{[]specs.POSIXRlimit{core}, []specs.POSIXRlimit{core, {Type: "RLIMIT_NOFILE", Soft: min(1024, hard), Hard: hard}}},
		{[]specs.POSIXRlimit{own}, []specs.POSIXRlimit{own}},
	} {
		caller := &specs.Spec{Process: &specs.Process{Rlimits: tc.in}}
		spec := ownSpec(caller)
		limitFiles(spec.Process)
		if diff := cmp.Diff(tc.want, spec.Process.Rlimits); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(tc.in, caller.Process.Rlimits); diff != "" {
			t.Errorf("the caller's process changed: %s", diff)
		}
	}
}
