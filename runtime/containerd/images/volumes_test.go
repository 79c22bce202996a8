package images

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeclaredVolumes(t *testing.T) {
	t.Parallel()
	got := declaredVolumes(map[string]struct{}{"/var/lib/data/": {}, "cache": {}, "/cache": {}})
	if d := cmp.Diff([]string{"/cache", "/var/lib/data"}, got); d != "" {
		t.Error(d)
	}
	if none := declaredVolumes(nil); len(none) > 0 {
		t.Errorf("none declared: %v", none)
	}
}
