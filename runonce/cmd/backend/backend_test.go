package backend

import (
	"os"
	"testing"
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
			got := findResolvConf(func(path string) ([]byte, error) {
				text := map[string]string{resolvConf: c.stub, resolvedConf: c.real}[path]
				if text == "" {
					return nil, os.ErrNotExist
				}
				return []byte(text), nil
			})
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
