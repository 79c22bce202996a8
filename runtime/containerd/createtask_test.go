package containerd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/runonce/runonce/runtime/containerd/images"
)

// ending is a containerd whose shim of the pod ends while it gets another container.
type ending struct {
	oneTask
	until time.Time // containerd knows that
	err   error     // afterwards
}

func (e *ending) Create(context.Context, *tasksapi.CreateTaskRequest, ...grpc.CallOption) (*tasksapi.CreateTaskResponse, error) {
	if time.Now().Before(e.until) {
		return nil, status.Error(codes.Unknown, "failed to create shim task: ttrpc: closed")
	}
	return &tasksapi.CreateTaskResponse{Pid: 7}, e.err
}

// TestShimEnds: a container of a daemon that comes when the pod's shim ends gets another one.
func TestShimEnds(t *testing.T) {
	failed := errors.New("no such runtime")
	for _, tt := range []struct {
		name  string
		after time.Duration
		err   error
		want  string
		takes time.Duration
	}{
		{"another shim", 250 * time.Millisecond, nil, "", 300 * time.Millisecond},
		{"something else", 0, failed, failed.Error(), 0},
		{"never", time.Hour, nil, "ttrpc: closed", shimGone + 100*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				e, s := testEngine(t, &ending{until: begun.Add(tt.after), err: tt.err})
				err := e.createTask(t.Context(), s, "pod", &tasksapi.CreateTaskRequest{ContainerID: "c"}, false)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				if took := time.Since(begun); took != tt.takes {
					t.Errorf("took %s, want %s", took, tt.takes)
				}
			})
		})
	}
}

// TestShimEnded has the errors of containerd 2.4 for a shim that ended while it answered, and between a first connection
// and that of containerd.
func TestShimEnded(t *testing.T) {
	for text, want := range map[string]bool{
		"failed to create shim task: ttrpc: closed": true,
		"failed to start shim: failed to load sandbox task \"runonce/a\": unable to make connection: failed to create TTRPC connection: dial unix /run/s/a: connect: no such file or directory": true,
		"failed to create shim task: OCI runtime create failed: no such file": false,
	} {
		if got := shimEnded(images.NativeError(status.Error(codes.Unknown, text))); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
