package containerd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// TestBusyShimDeletes: a shim that did not end within containerd's three seconds is asked again.
func TestBusyShimDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tasks := &lateTask{late: 2}
		e, s := testEngine(t, tasks)
		if err := e.deleteTask(t.Context(), s, "c"); err != nil || tasks.late != 0 {
			t.Errorf("%v, late %d times more", err, tasks.late)
		}
	})
}

// lateTask is a containerd whose shim does not end in time when its task is deleted.
type lateTask struct {
	oneTask
	late int // how often
}

func (l *lateTask) Delete(context.Context, *tasksapi.DeleteTaskRequest, ...grpc.CallOption) (*tasksapi.DeleteResponse, error) {
	if l.late > 0 {
		l.late--
		time.Sleep(3 * time.Second)
		return nil, status.Error(codes.Unknown, "failed to delete task: failed to invoke shutdown: context deadline exceeded")
	}
	return &tasksapi.DeleteResponse{}, nil
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
