package containerd

import (
	"os"
	"testing"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// TestNeverRan: a container whose start was cut off before its process ran has not ended.
func TestNeverRan(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		name   string
		status tasktypes.Status
		record *exitrecord.Record
		want   engine.State
	}{
		{"created", tasktypes.Status_CREATED, nil, engine.StateCreated},
		{"killed before it ran, with its shim", tasktypes.Status_STOPPED, nil, engine.StateCreated},
		{"killed before it ran", tasktypes.Status_STOPPED, &exitrecord.Record{FinishedAt: at, ExitCode: 137}, engine.StateCreated},
		{"ran", tasktypes.Status_RUNNING, &exitrecord.Record{StartedAt: at}, engine.StateRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			e := &Engine{containers: newContainerStore(), o: Options{Root: dir}}
			if c.record != nil {
				writeRecord(t, e, *c.record)
			}
			e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: at})
			e.reconcile(t.Context(), nil, "c", &tasktypes.Process{ID: "c", Status: c.status, ExitStatus: 137, ExitedAt: timestamppb.New(at)})
			if got, _, _ := e.containers.get("c"); got.State != c.want {
				t.Errorf("%s, want %s", got.State, c.want)
			}
		})
	}
}

func writeRecord(t *testing.T, e *Engine, r exitrecord.Record) {
	t.Helper()
	if err := os.MkdirAll(e.recordDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(e.recordPath("c")); err != nil {
		t.Fatal(err)
	}
}
