package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLostState: the state directory is deleted while pods run, as far as its mounts allow that. What
// nobody knows any more of the containers is killed before they start again, no two pods have one
// address, and nothing is left in the end.
func TestLostState(t *testing.T) {
	b := newBox(t, "")
	network := func(manifest, more string) string {
		return strings.Replace(manifest, "hostNetwork: true", more, 1)
	}
	dir := directory(t,
		network(pod("always", "Always", "sleep"), "dnsPolicy: Default"),
		network(pod("never", "Never", "sleep"), "dnsPolicy: Default"),
		network(pod("shared", "Always", "sleep"), "shareProcessNamespace: true"),
	)
	b.up(t, dir, 0)
	lose := func() {
		t.Helper()
		err := filepath.WalkDir(filepath.Join(b.dir, "state"), func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.Name() == "rootfs":
				return fs.SkipDir
			case !e.IsDir():
				_ = os.Remove(path) // but what a namespace is mounted on
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	lose()
	b.up(t, dir, 0)
	if !eventually(func() bool { return len(b.containers(t)) == 3 }) {
		t.Errorf("processes of containers: %q", b.containers(t))
	}
	addresses := map[string]string{}
	for _, p := range b.run(t, "ps", "-o", "json").report.Pods {
		if ip := strings.Join(p.PodIPs, ","); ip == "" || addresses[ip] != "" {
			t.Errorf("pod %s has the address %q, as has %q", p.Name, ip, addresses[ip])
		} else {
			addresses[ip] = p.Name
		}
	}
	lose()
	if r := b.run(t, "down", "--all"); r.code != 0 {
		t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
	}
	b.unchanged(t)
}
