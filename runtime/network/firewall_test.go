package network

import "testing"

func TestSystemPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"none", "", "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"},
		{"cron's", "/usr/bin:/bin", "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"},
		{"own first", "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"},
	} {
		if got := systemPath(tt.in); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
