package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCgroups(t *testing.T) {
	t.Parallel()
	const text = "9:name=systemd:/\n2:cpu,cpuacct:/a:b\nnothing\n3:memory:outside\n0::/c\n"
	want := map[string]string{"name=systemd": "/", "cpu": "/a:b", "cpuacct": "/a:b", "": "/c"}
	if diff := cmp.Diff(want, ParseCgroups(text)); diff != "" {
		t.Error(diff)
	}
}
