package containerd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
)

// Processes that serve for a moment may take turns while a call is being repeated.
func TestCallsAreRepeatedInEverySession(t *testing.T) {
	t.Parallel()
	sessions := []*session{{}, {}, {}}
	e := &Engine{current: sessions[0]}
	var used []*session
	err := e.do(t.Context(), func(_ context.Context, s *session) error {
		used = append(used, s)
		if len(used) == len(sessions) {
			return nil
		}
		e.current = sessions[len(used)] // as another call does that has met the same
		return errdefs.ErrUnavailable
	})
	if err != nil || len(used) != len(sessions) || used[2] != sessions[2] {
		t.Errorf("%v after %d calls", err, len(used))
	}
}

func TestCallsThatFailAreNotRepeatedInTheSameSession(t *testing.T) {
	t.Parallel()
	e := &Engine{current: &session{}}
	calls := 0
	err := e.do(t.Context(), func(context.Context, *session) error {
		calls++
		return errdefs.ErrInvalidArgument
	})
	if !errdefs.IsInvalidArgument(err) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	err := notFound(images.NativeError(status.Error(codes.NotFound, "container a: not found")))
	if !errors.Is(err, engine.ErrNotFound) || !errdefs.IsNotFound(err) || strings.Count(err.Error(), "not found") != 1 {
		t.Errorf("%v", err)
	}
}
