package nodeinfo

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestHolders(t *testing.T) {
	t.Parallel()
	link := func(target string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
	fsys := machine(map[string]string{
		"proc/12/comm":   "worker\n",
		"proc/12/cgroup": "3:cpu,cpuacct:/runonce/poda\n1:name=systemd:/runonce/poda\n0::/x:y\n",
		"proc/7/comm":    "etcd\n",
		"proc/9/comm":    "other\n",
	})
	for name, target := range map[string]string{
		"proc/12/fd/3": "socket:[100]", "proc/12/fd/4": "socket:[100]", "proc/12/fd/5": "socket:[101]",
		"proc/7/fd/0": "/dev/null", "proc/7/fd/9": "socket:[100]",
		"proc/9/fd/1": "socket:[102]", "proc/net/fd/1": "socket:[100]",
	} {
		fsys[name] = link(target)
	}
	got := Holders(fsys, []uint64{100, 101, 0, 103})
	worker := Process{12, "worker", []string{"/runonce/poda", "/x:y"}}
	want := map[uint64][]Process{100: {{7, "etcd", nil}, worker}, 101: {worker}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Holders(fstest.MapFS{}, []uint64{100}); len(got) != 0 {
		t.Errorf("without /proc: %+v", got)
	}
}
