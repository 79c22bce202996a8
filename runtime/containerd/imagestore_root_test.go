package containerd_test

import (
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestImageRecords: the images of other programs can be told from our own, and what is removed is
// gone.
func TestImageRecords(t *testing.T) {
	roottest.Require(t)
	check := func(t *testing.T, p testDirs, socket string) {
		t.Helper()
		e := p.openWithBox(t)
		c, err := client.New(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		ctx := namespaces.WithNamespace(t.Context(), p.namespace())
		box, err := c.ImageService().Get(ctx, boxRef)
		if err != nil {
			t.Fatal(err)
		}
		const foreign = "localhost/foreign:1"
		if _, err := c.ImageService().Create(ctx, images.Image{Name: foreign, Target: box.Target}); err != nil {
			t.Fatal(err)
		}
		all, err := e.ListImages(t.Context())
		if err != nil || len(all) != 2 || all[0].Ref != boxRef || all[1].Ref != foreign {
			t.Fatalf("%+v, %v", all, err)
		}
		if !all[0].Own || !all[0].Pinned || all[1].Own || all[1].Pinned || all[0].Size < 1<<20 {
			t.Errorf("%+v", all)
		}
		if freed, err := e.RemoveImages(t.Context(), []string{boxRef}); err != nil || freed > 1<<10 { // the index of the archive
			t.Errorf("freed %d, which the other image still uses, %v", freed, err)
		}
		if freed, err := e.RemoveImages(t.Context(), []string{foreign}); err != nil || freed < all[0].Size {
			t.Errorf("freed %d, %v", freed, err)
		}
		if all, err := e.ListImages(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	}
	t.Run("embedded", func(t *testing.T) {
		p := newTestDirs(t)
		check(t, p, filepath.Join(p.dir, "state", "containerd.sock"))
	})
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			d := daemon.Serve(t, version)
			p := newTestDirs(t)
			p.address = d.Socket
			check(t, p, d.Socket)
		})
	}
}
