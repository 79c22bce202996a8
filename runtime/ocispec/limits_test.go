package ocispec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestHugePageLimits(t *testing.T) {
	t.Parallel()
	limits := map[int64]int64{2 << 20: 4 << 20, 64 << 10: 1 << 20}
	tests := []struct {
		name  string
		sizes []int64
		want  []specs.LinuxHugepageLimit
	}{
		{"no controller", nil, []specs.LinuxHugepageLimit{}},
		{
			"sizes without a limit are forbidden, those without a controller left out",
			[]int64{1 << 30, 2 << 20},
			[]specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB"}},
		},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, hugePageLimits(tt.sizes, limits)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
