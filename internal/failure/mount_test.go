package failure

import (
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestLowestMount(t *testing.T) {
	t.Parallel()
	const table = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 8:1 /srv/a /var/lib/a ro - ext4 /dev/sda1 rw
24 22 8:2 / /var/lib\040x rw - ext4 /dev/sda2 rw
25 22 0:5 / /var rw - tmpfs none rw
`
	for path, want := range map[string]string{
		"/":             "/",
		"/var":          "/var",
		"/var/lib":      "/var",
		"/var/lib/a":    "/var/lib/a",
		"/var/lib/a/b":  "/var/lib/a",
		"/var/lib/ab":   "/var",
		"/var/lib x/y":  "/var/lib x",
		"/varnish/data": "/",
	} {
		mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(table), above(path))
		if got := lowest(mounts); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}
}
