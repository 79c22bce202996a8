package shim

import (
	"context"
	"os"
	"os/exec"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"
)

// nobody is a PID that no process can have.
const nobody = 1 << 30

// scattered is the service of a container whose processes may not be in its cgroup.
type scattered struct {
	taskAPI.TTRPCTaskService
	inCgroup []*tasktypes.ProcessInfo
	status   tasktypes.Status
	pid      int
}

func (s scattered) Pids(context.Context, *taskAPI.PidsRequest) (*taskAPI.PidsResponse, error) {
	return &taskAPI.PidsResponse{Processes: s.inCgroup}, nil
}

func (s scattered) State(context.Context, *taskAPI.StateRequest) (*taskAPI.StateResponse, error) {
	return &taskAPI.StateResponse{Status: s.status, Pid: uint32(s.pid)}, nil
}

// TestPidsOutsideTheCgroup: the first process of a container counts in whatever cgroup it is,
// while it runs.
func TestPidsOutsideTheCgroup(t *testing.T) {
	t.Parallel()
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ended.Wait() })
	// Until it has ended; it is not reaped.
	if err := unix.Waitid(unix.P_PID, ended.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		in   scattered
		want []uint32
	}{
		{"in the cgroup", scattered{inCgroup: []*tasktypes.ProcessInfo{{Pid: 7}, {Pid: 8}}, status: tasktypes.Status_RUNNING, pid: 7}, []uint32{7, 8}},
		{"outside", scattered{status: tasktypes.Status_RUNNING, pid: os.Getpid()}, []uint32{uint32(os.Getpid())}},
		{"paused outside", scattered{status: tasktypes.Status_PAUSED, pid: os.Getpid()}, []uint32{uint32(os.Getpid())}},
		{"stopped, and the number is another's", scattered{status: tasktypes.Status_STOPPED, pid: os.Getpid()}, nil},
		{"gone", scattered{status: tasktypes.Status_RUNNING, pid: nobody}, nil},
		{"ended", scattered{status: tasktypes.Status_RUNNING, pid: ended.Process.Pid}, nil},
		{"not started", scattered{status: tasktypes.Status_CREATED}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			resp, err := (&service{TTRPCTaskService: tc.in}).Pids(t.Context(), &taskAPI.PidsRequest{ID: "a"})
			if err != nil {
				t.Fatal(err)
			}
			var got []uint32
			for _, p := range resp.Processes {
				got = append(got, p.Pid)
			}
			if len(got) != len(tc.want) || (len(got) > 0 && got[0] != tc.want[0]) {
				t.Errorf("processes %v, want %v", got, tc.want)
			}
		})
	}
}
