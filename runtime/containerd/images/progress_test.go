package images

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// presentStore has some blobs.
type presentStore struct {
	content.Store
	blobs map[digest.Digest]bool
}

func (s presentStore) Info(_ context.Context, d digest.Digest) (content.Info, error) {
	if s.blobs[d] {
		return content.Info{}, nil
	}
	return content.Info{}, errdefs.ErrNotFound
}

// TestTransfer: the bytes of a pull are those that have to be fetched, and never go back.
func TestTransfer(t *testing.T) {
	t.Parallel()
	blob := func(name, kind string, size int64) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: kind, Digest: digest.FromString(name), Size: size}
	}
	config := blob("config", ocispec.MediaTypeImageConfig, 10)
	base := blob("base", ocispec.MediaTypeImageLayerGzip, 1000)
	first, second := blob("first", ocispec.MediaTypeImageLayerGzip, 100), blob("second", ocispec.MediaTypeImageLayerGzip, 200)
	manifest := blob("manifest", ocispec.MediaTypeImageManifest, 5)
	store := presentStore{blobs: map[digest.Digest]bool{base.Digest: true}}

	var got []engine.Transfer
	c := New(t.TempDir(), func(now engine.Transfer) { got = append(got, now) })
	tr := c.Track("x", engine.Pulling)
	h := tr.handler(store)(images.HandlerFunc(func(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if d.Digest == manifest.Digest {
			return []ocispec.Descriptor{config, base, first, second}, nil
		}
		return nil, nil
	}))
	handle := func(d ocispec.Descriptor) {
		t.Helper()
		if _, err := h.Handle(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	active := func(offsets map[string]int64) bool {
		all := []content.Status{{Ref: "layer-sha256:of-another-pull", Offset: 7}}
		for name, offset := range offsets {
			all = append(all, content.Status{Ref: "layer-" + digest.FromString(name).String(), Offset: offset})
		}
		return tr.advance(all)
	}
	tr.bytes.Add(70) // of the manifest so far
	complete := []bool{active(nil)}
	handle(manifest)
	handle(config)
	complete = append(complete, active(map[string]int64{"first": 40, "second": 60}))
	handle(first)
	// A registry that broke off begins again.
	complete = append(complete, active(map[string]int64{"second": 0}))
	handle(second)
	complete = append(complete, active(nil))
	tr.End(engine.Pulling, nil)

	want := []engine.Transfer{
		{Step: engine.Pulling, Name: "x"},
		{Step: engine.Pulling, Name: "x", Done: 70},
		{Step: engine.Pulling, Name: "x", Done: 110, Total: 310},
		{Step: engine.Pulling, Name: "x", Done: 170, Total: 310},
		{Step: engine.Pulling, Name: "x", Done: 310, Total: 310, Ended: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, false, false, true}, complete); diff != "" {
		t.Error(diff)
	}
	if silent := New(t.TempDir(), nil).Track("x", engine.Pulling); silent != nil {
		t.Error("a transfer that nobody wants to know of")
	}
}
