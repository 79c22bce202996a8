package runtime

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
)

// TestOwnMounts: what is known of the files of a node is true of this one.
func TestOwnMounts(t *testing.T) {
	t.Parallel()
	p := &Pods{o: Options{Records: record.Open(t.TempDir(), t.TempDir())}}
	for _, c := range []*v1.Container{{Name: "c"}, {Name: "c", TerminationMessagePath: "/dev/termination-log"}} {
		pod := &v1.Pod{}
		pod.UID = "u"
		if err := os.MkdirAll(p.o.Records.Dir(pod.UID), 0o700); err != nil {
			t.Fatal(err)
		}
		own, err := p.ownMounts(pod, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		files := podspec.NodeFiles(c)
		if len(own) != len(files) {
			t.Fatalf("%d mounts, %d files", len(own), len(files))
		}
		for i, m := range own {
			if m.Destination != files[i].Path {
				t.Errorf("%s is mounted, want %s", m.Destination, files[i].Path)
			}
		}
	}
}
