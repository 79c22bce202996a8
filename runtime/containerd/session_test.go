package containerd

import (
	"fmt"
	"testing"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"v2.4.2": "2.4", "1.6.20~ds1": "1.6", "v2.0.0-rc.3": "2.0", "2.10": "2.10",
		"": "error", "v2": "error", "unknown": "error", "a.b.c": "error",
	} {
		got := "error"
		if major, minor, err := parseVersion(in); err == nil {
			got = fmt.Sprintf("%d.%d", major, minor)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
