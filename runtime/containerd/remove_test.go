package containerd

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
)

// A call to a shim that dies meanwhile is repeated until containerd has noticed that.
func TestUntilShimGone(t *testing.T) {
	t.Parallel()
	closed, gone := errors.New("failed to delete task: ttrpc: closed"), errors.New("not found")
	for _, tt := range []struct {
		name  string
		errs  []error // of the calls; the last is repeated
		want  error
		after time.Duration
	}{
		{"at once", []error{nil}, nil, 0},
		{"another error", []error{gone, nil}, gone, 0},
		{"noticed", []error{closed, closed, gone}, gone, 200 * time.Millisecond},
		{"never noticed", []error{closed}, closed, 5100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin, calls := time.Now(), 0
				err := untilShimGone(t.Context(), func() error {
					calls++
					return tt.errs[min(calls, len(tt.errs))-1]
				})
				if !errors.Is(err, tt.want) || time.Since(begin) != tt.after {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), tt.want, tt.after)
				}
			})
		})
	}
}

// TestBusyShim: a shim that does not answer within containerd's two seconds is asked again.
func TestBusyShim(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		busy  int
		want  string
		after time.Duration
	}{
		{0, "", 0},
		{3, "", 6300 * time.Millisecond},
		{100, "looking for its task: its shim does not respond: context deadline exceeded", 31400 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, s := testEngine(t, &oneTask{status: tasktypes.Status_RUNNING, busy: tt.busy})
			begin, got := time.Now(), ""
			if _, err := s.task(t.Context(), "c"); err != nil {
				got = err.Error()
			}
			if got != tt.want || time.Since(begin) != tt.after {
				t.Errorf("busy %d times: %q after %s, want %q after %s", tt.busy, got, time.Since(begin), tt.want, tt.after)
			}
		})
	}
}
