package backend

import (
	"testing"
	"testing/fstest"
)

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stub, real string
		want             string
	}{
		{"plain", "nameserver 192.0.2.1\n", "x", resolvConf},
		{"stub of systemd-resolved", "# stub\nnameserver 127.0.0.53\noptions edns0\n", "nameserver 192.0.2.1\n", resolvedConf},
		{"stub without the other file", "nameserver 127.0.0.53\n", "", resolvConf},
		{"a second server", "nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "x", resolvConf},
		{"none", "", "", resolvConf},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			machine := fstest.MapFS{}
			for path, text := range map[string]string{resolvConf: c.stub, resolvedConf: c.real} {
				if text != "" {
					machine[path[1:]] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			got, text, err := ResolvConf(machine)
			if want := map[string]string{resolvConf: c.stub, resolvedConf: c.real}[got]; text != want || (err != nil) != (c.stub == "") {
				t.Errorf("text %q, error %v", text, err)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCgroupParent(t *testing.T) {
	t.Parallel()
	if got := CgroupParent(DefaultRoot); got != "/runonce" {
		t.Errorf("default root: %s", got)
	}
	if a, b := CgroupParent("/a"), CgroupParent("/b"); a == b || len(a) != len("/runonce-12345678") {
		t.Errorf("roots /a and /b: %s and %s", a, b)
	}
}
