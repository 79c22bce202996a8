package server

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
)

// scripted is a snapshotter whose calls fail in a given order.
type scripted struct {
	snapshots.Snapshotter
	prepares []error
	remove   error
}

func (s *scripted) Prepare(context.Context, string, string, ...snapshots.Opt) ([]mount.Mount, error) {
	err := s.prepares[0]
	s.prepares = slices.Delete(s.prepares, 0, 1)
	return nil, err
}

func (s *scripted) Remove(context.Context, string) error { return s.remove }

func TestTouch(t *testing.T) {
	t.Parallel()
	other := errors.New("no space left on device")
	for _, tc := range []struct {
		name     string
		prepares []error
		remove   error
		want     error
	}{
		{name: "made and removed", prepares: []error{nil}},
		{name: "there from before", prepares: []error{errdefs.ErrAlreadyExists}},
		{name: "removed by the collector", prepares: []error{nil}, remove: errdefs.ErrNotFound},
		{name: "a directory in the way", prepares: []error{other, nil}},
		{name: "cannot be made", prepares: []error{other, other}, want: other},
		{name: "cannot be removed", prepares: []error{nil}, remove: other, want: other},
	} {
		if err := touch(t.Context(), &scripted{prepares: tc.prepares, remove: tc.remove}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}
