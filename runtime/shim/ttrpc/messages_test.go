package ttrpc

import (
	"reflect"
	"testing"
	"time"

	cgroup1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	cgroup2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	eventsapi "github.com/containerd/containerd/api/events"
	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskv2 "github.com/containerd/containerd/api/runtime/task/v2"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	eventsttrpc "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var (
	at       = time.Unix(1767322845, 600000007).UTC()
	theirAt  = timestamppb.New(at)
	anAny    = Any{"a.Type", []byte("\x00value")}
	theirs   = &anypb.Any{TypeUrl: "a.Type", Value: []byte("\x00value")}
	request1 = Request{"id", "exec"}
	exit1    = Exit{137, at}
	stdio1   = Stdio{"in", "out", "err", true}
)

func messages() []struct {
	ours   Message
	theirs proto.Message
} {
	mounts := List[Mount, *Mount]{{"overlay", "src", "target", []string{"ro", "", "lowerdir=/a"}}, {}}
	theirMounts := []*types.Mount{{Type: "overlay", Source: "src", Target: "target", Options: []string{"ro", "", "lowerdir=/a"}}, {}}
	envelopeOf := &envelope{at, "ns", "/tasks/exit", anAny}
	return []struct {
		ours   Message
		theirs proto.Message
	}{
		{&CreateRequest{"id", "/b", mounts, stdio1, "cp", anAny}, &task.CreateTaskRequest{
			ID: "id", Bundle: "/b", Rootfs: theirMounts, Stdin: "in", Stdout: "out", Stderr: "err", Terminal: true, Checkpoint: "cp", Options: theirs,
		}},
		{&CreateRequest{ID: "id"}, &taskv2.CreateTaskRequest{ID: "id"}},
		{&request1, &task.StartRequest{ID: "id", ExecID: "exec"}},
		{&request1, &task.DeleteRequest{ID: "id", ExecID: "exec"}},
		{&request1, &task.StateRequest{ID: "id", ExecID: "exec"}},
		{&request1, &task.WaitRequest{ID: "id", ExecID: "exec"}},
		{&Request{ID: "id"}, &task.PidsRequest{ID: "id"}},
		{&Request{ID: "id"}, &task.PauseRequest{ID: "id"}},
		{&Request{ID: "id"}, &task.ResumeRequest{ID: "id"}},
		{&Request{ID: "id"}, &task.ConnectRequest{ID: "id"}},
		{&Request{ID: "id"}, &task.ShutdownRequest{ID: "id"}},
		{&ExecRequest{request1, stdio1, anAny}, &task.ExecProcessRequest{
			ID: "id", ExecID: "exec", Stdin: "in", Stdout: "out", Stderr: "err", Terminal: true, Spec: theirs,
		}},
		{&KillRequest{request1, 9, true}, &task.KillRequest{ID: "id", ExecID: "exec", Signal: 9, All: true}},
		{&ResizeRequest{request1, 80, 1 << 31}, &task.ResizePtyRequest{ID: "id", ExecID: "exec", Width: 80, Height: 1 << 31}},
		{&CloseIORequest{request1, true}, &task.CloseIORequest{ID: "id", ExecID: "exec", Stdin: true}},
		{&UpdateRequest{"id", anAny}, &task.UpdateTaskRequest{ID: "id", Resources: theirs}},
		{&PID{1 << 22}, &task.StartResponse{Pid: 1 << 22}},
		{&PID{1}, &task.CreateTaskResponse{Pid: 1}},
		{&exit1, &task.WaitResponse{ExitStatus: 137, ExitedAt: theirAt}},
		{&Exit{At: time.Unix(-1, 999).UTC()}, &task.WaitResponse{ExitedAt: timestamppb.New(time.Unix(-1, 999))}},
		{&DeleteResponse{7, exit1}, &task.DeleteResponse{Pid: 7, ExitStatus: 137, ExitedAt: theirAt}},
		{&StateResponse{request1, "/b", 7, Stopped, stdio1, exit1}, &task.StateResponse{
			ID: "id", ExecID: "exec", Bundle: "/b", Pid: 7, Status: tasktypes.Status_STOPPED, Stdin: "in", Stdout: "out", Stderr: "err",
			Terminal: true, ExitStatus: 137, ExitedAt: theirAt,
		}},
		{&PidsResponse{List[ProcessInfo, *ProcessInfo]{{7, anAny}, {8, Any{}}}}, &task.PidsResponse{
			Processes: []*tasktypes.ProcessInfo{{Pid: 7, Info: theirs}, {Pid: 8}},
		}},
		{&ProcessDetails{"exec"}, &options.ProcessDetails{ExecID: "exec"}},
		{&ConnectResponse{7, 8}, &task.ConnectResponse{ShimPid: 7, TaskPid: 8}},
		{&Options{true, true, "/cg", 1, 2, "runc", "/root", true}, &options.Options{
			NoPivotRoot: true, NoNewKeyring: true, ShimCgroup: "/cg", IoUid: 1, IoGid: 2, BinaryName: "runc", Root: "/root", SystemdCgroup: true,
		}},
		{&TaskCreate{"id", "/b", mounts, stdio1, 7}, &eventsapi.TaskCreate{
			ContainerID: "id", Bundle: "/b", Rootfs: theirMounts, IO: &eventsapi.TaskIO{Stdin: "in", Stdout: "out", Stderr: "err", Terminal: true}, Pid: 7,
		}},
		{&ContainerEvent{ID: "id", PID: 7}, &eventsapi.TaskStart{ContainerID: "id", Pid: 7}},
		{&ContainerEvent{"id", 7, exit1}, &eventsapi.TaskDelete{ContainerID: "id", Pid: 7, ExitStatus: 137, ExitedAt: theirAt}},
		{&ContainerEvent{ID: "id"}, &eventsapi.TaskOOM{ContainerID: "id"}},
		{&ContainerEvent{ID: "id"}, &eventsapi.TaskPaused{ContainerID: "id"}},
		{&ContainerEvent{ID: "id"}, &eventsapi.TaskResumed{ContainerID: "id"}},
		{&ProcessEvent{request1, 7, exit1}, &eventsapi.TaskExit{ContainerID: "id", ID: "exec", Pid: 7, ExitStatus: 137, ExitedAt: theirAt}},
		{&ProcessEvent{Request: request1}, &eventsapi.TaskExecAdded{ContainerID: "id", ExecID: "exec"}},
		{&ProcessEvent{Request: request1, PID: 7}, &eventsapi.TaskExecStarted{ContainerID: "id", ExecID: "exec", Pid: 7}},
		{&ForwardRequest{*envelopeOf}, &eventsttrpc.ForwardRequest{
			Envelope: &types.Envelope{Timestamp: theirAt, Namespace: "ns", Topic: "/tasks/exit", Event: theirs},
		}},
		{&BootstrapParams{"id", "ns", List[Extension, *Extension]{{anAny}}, "/s"}, &bootapi.BootstrapParams{
			InstanceID: "id", Namespace: "ns", Extensions: []*bootapi.Extension{{Value: theirs}}, SocketDir: proto.String("/s"),
		}},
		{&BootstrapResult{3, "unix:///s", "ttrpc"}, &bootapi.BootstrapResult{Version: 3, Address: "unix:///s", Protocol: "ttrpc"}},
		{&RuntimeInfo{"name", anAny, Any{"b", nil}}, &types.RuntimeInfo{Name: "name", Options: theirs, Features: &anypb.Any{TypeUrl: "b"}}},
		{&Error{5, "gone"}, status.New(codes.NotFound, "gone").Proto()},
		{&Empty{}, &task.ExecProcessResponse{}},
	}
}

// TestMessages: this program and containerd's generated code read what the other one writes.
// TestMetrics: the numbers are where containerd's clients look for them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	read := func(m *Metrics, into proto.Message) {
		t.Helper()
		resp := NewStats(m)
		if want := string(into.ProtoReflect().Descriptor().FullName()); resp.Stats.TypeURL != want {
			t.Errorf("type %s, want %s", resp.Stats.TypeURL, want)
		}
		if err := proto.Unmarshal(resp.Stats.Value, into); err != nil {
			t.Fatal(err)
		}
	}
	var one cgroup1.Metrics
	if read(&Metrics{PIDs: 1, CPU: 2, Memory: 3}, &one); one.Pids.Current != 1 || one.CPU.Usage.Total != 2 || one.Memory.Usage.Usage != 3 {
		t.Error(&one)
	}
	var two cgroup2.Metrics
	if read(&Metrics{V2: true, PIDs: 1, CPU: 2, Memory: 3}, &two); two.Pids.Current != 1 || two.CPU.UsageUsec != 2 || two.Memory.Usage != 3 {
		t.Error(&two)
	}
	var resp task.StatsResponse
	if err := proto.Unmarshal(Marshal(NewStats(&Metrics{})), &resp); err != nil || resp.Stats.TypeUrl != "io.containerd.cgroups.v1.Metrics" {
		t.Errorf("%v, %v", &resp, err)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, tc := range messages() {
		t.Run(string(tc.theirs.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			t.Parallel()
			got := tc.theirs.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(Marshal(tc.ours), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.theirs, got, protocmp.Transform()); diff != "" {
				t.Errorf("they read:\n%s", diff)
			}
			data, err := proto.Marshal(tc.theirs)
			if err != nil {
				t.Fatal(err)
			}
			back, ok := reflect.New(reflect.TypeOf(tc.ours).Elem()).Interface().(Message)
			if !ok {
				t.Fatal("no message")
			}
			if err := Unmarshal(data, back); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(tc.ours, back) {
				t.Errorf("read %+v, want %+v", back, tc.ours)
			}
		})
	}
}

// TestUnknownFields: fields of a later containerd are skipped, and those that have another type.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	data, err := proto.Marshal(&task.ShutdownRequest{ID: "id", Now: true})
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, 0x79, 1, 2, 3, 4, 5, 6, 7, 8) // 15, fixed64
	data = append(data, 0x7d, 1, 2, 3, 4)             // 15, fixed32
	data = append(data, 0x0d, 1, 2, 3, 4)             // 1, fixed32
	var r Request
	if err := Unmarshal(data, &r); err != nil || r != (Request{ID: "id"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"no value":            "\x0a",
		"too short":           "\x0a\x05abc",
		"huge length":         "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"overflow":            "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"group":               "\x0b\x0c",
		"field 0":             "\x02\x00",
		"field too large":     "\x82\x80\x80\x80\x80\x01\x00",
		"in a nested message": "\x52\x01\x0a",
		"in a list":           "\x1a\x01\x0a",
	} {
		if err := Unmarshal([]byte(data), &CreateRequest{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzUnmarshal: what containerd's generated code reads, this program reads as the same.
func FuzzUnmarshal(f *testing.F) {
	for _, tc := range messages() {
		f.Add(Marshal(tc.ours))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var ours CreateRequest
		err := Unmarshal(data, &ours)
		var theirs task.CreateTaskRequest
		if proto.Unmarshal(data, &theirs) != nil {
			return // it refuses more, such as strings that are not UTF-8
		}
		if err != nil {
			if hasGroup(data) {
				return
			}
			t.Fatalf("%x: %v", data, err)
		}
		if ours.ID != theirs.ID || ours.Terminal != theirs.Terminal || len(ours.Rootfs) != len(theirs.Rootfs) || string(ours.Options.Value) != string(theirs.Options.GetValue()) {
			t.Errorf("%+v, want %+v", &ours, &theirs)
		}
	})
}

// hasGroup reports whether there may be a group, which proto3 does not have.
func hasGroup(data []byte) bool {
	for _, b := range data {
		if b&7 == 3 || b&7 == 4 {
			return true
		}
	}
	return false
}
