package containerd

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	ptypes "github.com/containerd/containerd/v2/pkg/protobuf/types"
	"google.golang.org/grpc"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// deaf is a task whose shim does not say that it has ended.
type deaf struct{ oneTask }

func (*deaf) Kill(context.Context, *tasksapi.KillRequest, ...grpc.CallOption) (*ptypes.Empty, error) {
	return &ptypes.Empty{}, nil
}

// TestLateExit: a process that hangs in the kernel is given up before one that has ended, whose shim
// only takes long to say so.
func TestLateExit(t *testing.T) {
	const none = 1 << 30 // no process has this number
	for _, tt := range []struct {
		name  string
		pid   int
		after time.Duration
		want  string
	}{
		{"runs on", os.Getpid(), time.Minute, "its process is still running 30s after SIGKILL"},
		{"ended", none, time.Minute, ""},
		{"ended, but never told", none, time.Hour, "its shim did not report it within 3m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s := testEngine(t, &deaf{oneTask{status: tasktypes.Status_RUNNING}})
				e.containers.put(engine.Container{ID: "c", State: engine.StateRunning, PID: tt.pid, CreatedAt: time.Now(), StartedAt: time.Now()})
				late := time.AfterFunc(tt.after, func() { e.containers.exited(protocol.Record{ContainerID: "c", FinishedAt: time.Now()}) })
				defer late.Stop()
				err := e.stop(t.Context(), s, "c", 9, 0)
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			})
		})
	}
}
