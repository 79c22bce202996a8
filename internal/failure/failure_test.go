package failure_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

func TestError(t *testing.T) {
	t.Parallel()
	final := failure.ConfigErrorf("x %d", 1)
	for _, tt := range []struct {
		name      string
		in        error
		permanent bool
		reason    string
		after     time.Duration
	}{
		{"none", nil, false, "else", 0},
		{"other", errors.New("x"), false, "else", 0},
		{"permanent", failure.Permanentf("x"), true, "else", 0},
		{"with a reason", final, true, "CreateContainerConfigError", 0},
		{"wrapped", fmt.Errorf("y: %w", final), true, "CreateContainerConfigError", 0},
		{"joined", errors.Join(errors.New("y"), final), true, "CreateContainerConfigError", 0},
		{"the outer reason counts", &failure.Error{Why: "Outer", Err: final}, true, "Outer", 0},
		{"what is left out, the cause says", &failure.Error{Err: &failure.Error{Why: "Inner", Wait: 1, Err: final}}, true, "Inner", 1},
		{"under another message", failure.WithMessage("z", final), true, "CreateContainerConfigError", 0},
		{"to be retried", &failure.Error{Why: "Outer", Wait: time.Second, Err: fs.ErrExist}, false, "Outer", time.Second},
	} {
		if got := failure.IsPermanent(tt.in); got != tt.permanent {
			t.Errorf("%s: permanent %v", tt.name, got)
		}
		if got := failure.Reason(tt.in, "else"); got != tt.reason {
			t.Errorf("%s: reason %q", tt.name, got)
		}
		if got := failure.RetryAfter(tt.in); got != tt.after {
			t.Errorf("%s: retry after %s", tt.name, got)
		}
	}
}

// later asks for a wait.
type later struct{ error }

func (later) RetryDelay() time.Duration { return time.Minute }

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   error
		want time.Duration
	}{{nil, 0}, {fs.ErrExist, 0}, {&failure.Error{Err: fmt.Errorf("y: %w", later{fs.ErrExist})}, time.Minute}} {
		if got := failure.RetryDelay(tt.in); got != tt.want {
			t.Errorf("%v: %s", tt.in, got)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		failure.Permanentf("reading: %w", fs.ErrNotExist), failure.FailedMountf("reading: %w", fs.ErrNotExist),
		failure.CreateErrorf("reading: %w", fs.ErrNotExist), failure.WithMessage("reading: file does not exist", fs.ErrNotExist),
	} {
		if !errors.Is(err, fs.ErrNotExist) || err.Error() != "reading: file does not exist" {
			t.Errorf("%v", err)
		}
	}
}
