package containerd_test

import (
	"bytes"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/runtime/engine"
)

// TestDamagedLayer: a layer that cannot be extracted never can be, whether it came from an archive or from a
// registry, here or on a daemon.
func TestDamagedLayer(t *testing.T) {
	const damage = "invalid whiteout name"
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		t.Run("daemon "+string(version), func(t *testing.T) {
			p := dirsOf(t, version)
			e := p.openWith(t, nil)
			damaged := ociimage.Image{Ref: "localhost/damaged:1", Files: []ociimage.File{{Path: "dir/.wh.."}}}
			var archive bytes.Buffer
			if err := ociimage.Build(&archive, damaged); err != nil {
				t.Fatal(err)
			}
			if _, err := e.ImportArchive(t.Context(), archiveOf(t, archive.Bytes())); err != nil {
				t.Fatal(err)
			}
			_, err := e.Image(t.Context(), damaged.Ref)
			if !failure.IsPermanent(err) || failure.Reason(err, "") != failure.ReasonErrImagePull || !strings.Contains(err.Error(), damage) {
				t.Errorf("from an archive: %v", err)
			}
			r := registry.Start(t, registry.Options{})
			r.Push(t, "team/damaged:1", damaged)
			if _, err := e.Pull(t.Context(), r.Host+"/team/damaged:1"); !failure.IsPermanent(err) || !strings.Contains(err.Error(), damage) {
				t.Errorf("from a registry: %v", err)
			}
		})
	}
}

// TestOtherPlatform: an image that is only for other platforms is not there, and one that says in its
// configuration that it is for another one can be tried.
func TestOtherPlatform(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWith(t, nil)
	foreign := ociimage.Image{Ref: "localhost/foreign:1", Files: []ociimage.File{{Path: "a"}}, Architecture: "s390x"}
	var index, single bytes.Buffer
	if err := errors.Join(ociimage.BuildIndex(&index, "localhost/index:1", foreign), ociimage.Build(&single, foreign)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ImportArchive(t.Context(), archiveOf(t, index.Bytes())); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ImportArchive(t.Context(), archiveOf(t, single.Bytes())); err == nil || !strings.HasSuffix(err.Error(), ": it is for linux/s390x, not for linux/"+goruntime.GOARCH) {
		t.Errorf("the platform of the only image is in the index: %v", err)
	}
	_, err := e.Image(t.Context(), "localhost/index:1")
	var other *engine.PlatformError
	if !errors.Is(err, engine.ErrNotFound) || !errors.As(err, &other) || !slices.Equal(other.Of, []string{"linux/s390x"}) || other.Own != "linux/"+goruntime.GOARCH {
		t.Errorf("index: %v, %+v", err, other)
	}
	r := registry.Start(t, registry.Options{})
	r.Push(t, "team/foreign:1", foreign)
	if img, err := e.Pull(t.Context(), r.Host+"/team/foreign:1"); err != nil || img.Platform != "linux/s390x" {
		t.Errorf("manifest: %+v, %v", img, err)
	}
}
