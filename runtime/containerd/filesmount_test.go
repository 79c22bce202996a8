package containerd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// TestLayers: the options of an overlay, and where one with the same layer is mounted.
func TestLayers(t *testing.T) {
	t.Parallel()
	o := layersOf([]string{"index=off", "workdir=/s/9/work", "upperdir=/s/a b/9/fs", "lowerdir=/s/2/fs:/s/1/fs", "uidmap=0:65536:65536", "volatile"})
	want := layers{lower: []string{"/s/2/fs", "/s/1/fs"}, upper: "/s/a b/9/fs", work: "/s/9/work", others: []string{"index=off"}}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(layers{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for options, mounted := range map[string]bool{
		`rw,lowerdir=x,upperdir=/s/a\040b/9/fs,workdir=/s/9/work`: true, "rw,upperdir=/s/a b/9": false, "rw,lowerdir=/s/a b/9/fs": false,
	} {
		if got := o.isMountedAt(&mountinfo.Info{FSType: "overlay", VFSOptions: options}); got != mounted {
			t.Errorf("%s: %t", options, got)
		}
	}
	if (layers{}).isMountedAt(&mountinfo.Info{FSType: "overlay", VFSOptions: "upperdir="}) {
		t.Error("an overlay without a layer of its own is mounted")
	}
	for want, paths := range map[string][]string{"/a": {"/a/b/fs", "/a/c/fs"}, "/a/b": {"/a/b/fs"}, "/": {"/a/x", "/b/x"}} {
		if commonDir(paths) != want {
			t.Errorf("%q have %q", paths, commonDir(paths))
		}
	}
}
