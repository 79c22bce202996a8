package containerd

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/core/snapshots"
	ptypes "github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// TestNeverRan: a container whose start was cut off before its process ran has not ended.
func TestNeverRan(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		name   string
		status tasktypes.Status
		record *protocol.Record
		want   engine.State
	}{
		{"created", tasktypes.Status_CREATED, nil, engine.StateCreated},
		{"killed before it ran, with its shim", tasktypes.Status_STOPPED, nil, engine.StateCreated},
		{"killed before it ran", tasktypes.Status_STOPPED, &protocol.Record{FinishedAt: at, ExitCode: 137}, engine.StateCreated},
		{"ran", tasktypes.Status_RUNNING, &protocol.Record{StartedAt: at}, engine.StateRunning},
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

// TestExitEventOfWhatNeverRan: containerd reports an exit also when it deletes a task whose
// creation was cut off. The container has not run, and may be started.
func TestExitEventOfWhatNeverRan(t *testing.T) {
	t.Parallel()
	at := time.Now()
	thirdParty := map[string]string{labelThirdParty: "true"}
	for _, c := range []struct {
		name   string
		labels map[string]string
		record *protocol.Record
		want   engine.State
	}{
		{"never started", nil, nil, engine.StateCreated},
		{"never started, by a third-party shim", thirdParty, nil, engine.StateCreated},
		{"about to be started", thirdParty, &protocol.Record{}, engine.StateExited},
		{"started", thirdParty, &protocol.Record{StartedAt: at}, engine.StateExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, s := testEngine(t, &oneTask{})
			if c.record != nil {
				writeRecord(t, e, *c.record)
			}
			e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: at, Labels: c.labels})
			exit, err := typeurl.MarshalAny(&eventsapi.TaskExit{ContainerID: "c", ID: "c", ExitStatus: 137, ExitedAt: timestamppb.New(at)})
			if err != nil {
				t.Fatal(err)
			}
			e.apply(t.Context(), s, &events.Envelope{Topic: "/tasks/exit", Event: exit})
			e.work.Wait()
			got, ended, _ := e.containers.get("c")
			if got.State != c.want {
				t.Errorf("%s, want %s", got.State, c.want)
			}
			select {
			case <-ended:
			default:
				t.Error("whoever waits for its end still waits")
			}
		})
	}
}

// TestEventsOfAnEarlierTask: a container may be removed before it starts, and be made again, before
// the events of its first task come.
func TestEventsOfAnEarlierTask(t *testing.T) {
	t.Parallel()
	at := time.Now()
	e, s := testEngine(t, &oneTask{})
	writeRecord(t, e, protocol.Record{StartedAt: at})
	e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: at})
	e.containers.created("c", 7)
	for _, c := range []struct {
		event any
		want  engine.State
	}{
		{&eventsapi.TaskStart{ContainerID: "c", Pid: 6}, engine.StateCreated},
		{&eventsapi.TaskExit{ContainerID: "c", ID: "c", Pid: 6, ExitStatus: 137, ExitedAt: timestamppb.New(at)}, engine.StateCreated},
		{&eventsapi.TaskStart{ContainerID: "c", Pid: 7}, engine.StateRunning},
		{&eventsapi.TaskExit{ContainerID: "c", ID: "c", Pid: 6, ExitStatus: 137, ExitedAt: timestamppb.New(at)}, engine.StateRunning},
		{&eventsapi.TaskExit{ContainerID: "c", ID: "c", Pid: 7, ExitedAt: timestamppb.New(at)}, engine.StateExited},
	} {
		event, err := typeurl.MarshalAny(c.event)
		if err != nil {
			t.Fatal(err)
		}
		e.apply(t.Context(), s, &events.Envelope{Topic: "/tasks/any", Event: event})
		if got, _, _ := e.containers.get("c"); got.State != c.want || got.Exit.ExitCode != 0 {
			t.Errorf("after %v it is %s with exit code %d, want %s", c.event, got.State, got.Exit.ExitCode, c.want)
		}
	}
	e.work.Wait()
}

func testEngine(t *testing.T, tasks tasksapi.TasksClient) (*Engine, *session) {
	t.Helper()
	cl, err := client.New("", client.WithServices(client.WithTaskClient(tasks),
		client.WithContainerStore(noContainers{}), client.WithSnapshotters(map[string]snapshots.Snapshotter{"none": noSnapshots{}})))
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{
		containers: newContainerStore(), o: Options{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		deletions: make(chan struct{}, 1), signals: make(chan struct{}, 1), removals: make(chan struct{}, 1), timeouts: defaultTimeouts,
	}, &session{Conn: images.Conn{Client: cl, Snapshotter: "none"}}
}

// noContainers and noSnapshots have nothing to delete.
type noContainers struct{ containers.Store }

func (noContainers) Delete(context.Context, string) error { return nil }

type noSnapshots struct{ snapshots.Snapshotter }

func (noSnapshots) Remove(context.Context, string) error { return nil }

// oneTask is a containerd that has one task, or none if its status is unknown.
type oneTask struct {
	tasksapi.TasksClient
	status tasktypes.Status
	kill   func() // called by Kill
	busy   int    // how often the shim does not answer in time
	// whenDeleted, if set, is called by Delete.
	whenDeleted func()
}

func (o *oneTask) Kill(context.Context, *tasksapi.KillRequest, ...grpc.CallOption) (*ptypes.Empty, error) {
	o.status = tasktypes.Status_STOPPED
	o.kill()
	return &ptypes.Empty{}, nil
}

func (o *oneTask) Start(context.Context, *tasksapi.StartRequest, ...grpc.CallOption) (*tasksapi.StartResponse, error) {
	return nil, status.Error(codes.NotFound, "container not created")
}

func (o *oneTask) Wait(context.Context, *tasksapi.WaitRequest, ...grpc.CallOption) (*tasksapi.WaitResponse, error) {
	return &tasksapi.WaitResponse{}, nil
}

func (o *oneTask) Get(_ context.Context, r *tasksapi.GetRequest, _ ...grpc.CallOption) (*tasksapi.GetResponse, error) {
	if o.busy > 0 {
		o.busy--
		time.Sleep(2 * time.Second)
		return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	}
	if o.status == tasktypes.Status_UNKNOWN {
		return nil, status.Error(codes.NotFound, "no such task")
	}
	return &tasksapi.GetResponse{Process: &tasktypes.Process{ID: r.ContainerID, Status: o.status, ExitedAt: timestamppb.Now()}}, nil
}

func (o *oneTask) Delete(context.Context, *tasksapi.DeleteTaskRequest, ...grpc.CallOption) (*tasksapi.DeleteResponse, error) {
	if o.whenDeleted != nil {
		o.whenDeleted()
	}
	if o.status == tasktypes.Status_RUNNING {
		return nil, status.Error(codes.FailedPrecondition, "cannot delete a running process")
	}
	o.status = tasktypes.Status_UNKNOWN
	return &tasksapi.DeleteResponse{}, nil
}

// TestUndoStartedMeanwhile: what the call that was cut off has started after all is left running.
func TestUndoStartedMeanwhile(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	tasks := &oneTask{status: tasktypes.Status_CREATED, kill: func() { t.Error("it was killed") }}
	e, s := testEngine(t, tasks)
	e.current = s
	tasks.whenDeleted = func() {
		tasks.status = tasktypes.Status_RUNNING
		writeRecord(t, e, protocol.Record{ContainerID: "c", StartedAt: begin.Add(time.Second)})
	}
	e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: begin})
	e.undoStart(t.Context(), engine.ContainerConfig{ID: "c"}, begin)
	if got, _, _ := e.containers.get("c"); got.State != engine.StateRunning {
		t.Errorf("it is %q", got.State)
	}
}

func writeRecord(t *testing.T, e *Engine, r protocol.Record) {
	t.Helper()
	if err := os.MkdirAll(e.o.recordDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(e.recordPath("c")); err != nil {
		t.Fatal(err)
	}
}

// TestStartedSince: a start whose answer was lost is not repeated when the process may have run.
func TestStartedSince(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		name   string
		status tasktypes.Status
		record *protocol.Record
		want   bool
	}{
		{"not created", tasktypes.Status_UNKNOWN, nil, false},
		{"created", tasktypes.Status_CREATED, nil, false},
		{"about to be started", tasktypes.Status_CREATED, &protocol.Record{}, false},
		{"about to be started, and ended", tasktypes.Status_STOPPED, &protocol.Record{}, true},
		{"about to be started, and gone", tasktypes.Status_UNKNOWN, &protocol.Record{}, true},
		{"started", tasktypes.Status_RUNNING, &protocol.Record{StartedAt: at.Add(time.Second)}, true},
		{"started, without a record", tasktypes.Status_RUNNING, nil, true},
		{"started before", tasktypes.Status_UNKNOWN, &protocol.Record{StartedAt: at.Add(-time.Second)}, false},
		{"killed before it ran", tasktypes.Status_STOPPED, &protocol.Record{FinishedAt: at}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, s := testEngine(t, &oneTask{status: c.status})
			if c.record != nil {
				writeRecord(t, e, *c.record)
			}
			e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: at, Labels: map[string]string{labelThirdParty: "true"}})
			got, err := e.startedSince(t.Context(), s, "c", at)
			if err != nil || got != c.want {
				t.Errorf("%t, %v", got, err)
			}
			if known, _, _ := e.containers.get("c"); (known.State != engine.StateCreated) != c.want {
				t.Errorf("it is %s", known.State)
			}
		})
	}
}

// TestStartOfWhatEndsAtOnce: containerd may say that it knows no task when the process has run.
func TestStartOfWhatEndsAtOnce(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		name   string
		record *protocol.Record
		want   engine.State
	}{
		{"never ran", nil, engine.StateCreated},
		{"has ended", &protocol.Record{StartedAt: at, FinishedAt: at, ExitCode: 3}, engine.StateExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, s := testEngine(t, &oneTask{})
			if c.record != nil {
				writeRecord(t, e, *c.record)
			}
			e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: at})
			_, err := e.startTask(t.Context(), s, "c")
			if got, _, _ := e.containers.get("c"); got.State != c.want || (err == nil) != (c.record != nil) {
				t.Errorf("it is %s, want %s; %v", got.State, c.want, err)
			}
		})
	}
}

// TestUndoStart: a start that was cut off is undone only if the process has not run.
func TestUndoStart(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := begin.Add(time.Second)
	started := protocol.Record{ContainerID: "c", StartedAt: at}
	ended := protocol.Record{ContainerID: "c", StartedAt: at, FinishedAt: at, ExitCode: 137}
	thirdParty := map[string]string{labelThirdParty: "true"}
	for _, c := range []struct {
		name       string
		labels     map[string]string
		status     tasktypes.Status
		record     *protocol.Record
		whenKilled *protocol.Record
		want       engine.State // empty if it is removed
	}{
		{"not created", nil, tasktypes.Status_UNKNOWN, nil, nil, ""},
		{"waits", nil, tasktypes.Status_CREATED, nil, nil, ""},
		{"waits, and its end is recorded", nil, tasktypes.Status_CREATED, nil, &protocol.Record{ContainerID: "c", FinishedAt: at}, ""},
		{"waits, third-party shim", thirdParty, tasktypes.Status_CREATED, &protocol.Record{}, nil, ""},
		{"runs", nil, tasktypes.Status_RUNNING, &started, nil, engine.StateRunning},
		{"runs, third-party shim", thirdParty, tasktypes.Status_RUNNING, &protocol.Record{}, nil, engine.StateRunning},
		{"has ended", nil, tasktypes.Status_UNKNOWN, &ended, nil, engine.StateExited},
		{"is started meanwhile, third-party shim", thirdParty, tasktypes.Status_CREATED, &protocol.Record{}, &ended, engine.StateExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tasks := &oneTask{status: c.status}
			e, s := testEngine(t, tasks)
			e.current = s
			if c.record != nil {
				writeRecord(t, e, *c.record)
			}
			tasks.kill = func() {
				if c.whenKilled != nil {
					writeRecord(t, e, *c.whenKilled)
				}
			}
			e.containers.put(engine.Container{ID: "c", State: engine.StateCreated, CreatedAt: begin, Labels: c.labels})
			e.undoStart(t.Context(), engine.ContainerConfig{ID: "c"}, begin)
			if got, _, _ := e.containers.get("c"); got.State != c.want {
				t.Errorf("it is %q, want %q", got.State, c.want)
			}
		})
	}
}
