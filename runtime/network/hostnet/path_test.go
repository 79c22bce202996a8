package hostnet

import "testing"

func TestSystemEnv(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   []string
		want string
	}{
		{"none", nil, "PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"},
		{"cron's", []string{"PATH=/usr/bin:/bin"}, "PATH=/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"},
		{"own first", []string{"PATH=/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "A=b"}, "PATH=/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"},
	} {
		got := SystemEnv(tt.in)
		if last := got[len(got)-1]; last != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, last, tt.want)
		}
	}
}
