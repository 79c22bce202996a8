package shim

import (
	"context"
	"os"
	"strconv"
	"strings"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
)

// Pids tells of a container's first process also where the OCI runtime finds none in the
// container's cgroup: runc asks the v1 hierarchy of devices, where systemd may have moved
// it up, as it does when a slice or a service has devices of its own for the first time. A
// containerd that connects to us would take us for leaked and kill the container.
func (s *service) Pids(ctx context.Context, r *taskAPI.PidsRequest) (*taskAPI.PidsResponse, error) {
	resp, err := s.TTRPCTaskService.Pids(ctx, r)
	if err != nil || len(resp.Processes) > 0 {
		return resp, err
	}
	state, err := s.TTRPCTaskService.State(ctx, &taskAPI.StateRequest{ID: r.ID})
	if err == nil && state.Status != tasktypes.Status_STOPPED && lives(state.Pid) {
		resp.Processes = append(resp.Processes, &tasktypes.ProcessInfo{Pid: state.Pid})
	}
	return resp, nil
}

// lives reports whether the process is there and has not ended yet: the end may not be
// known to the service.
func lives(pid uint32) bool {
	stat, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/stat")
	if pid == 0 || err != nil {
		return false
	}
	// The state comes after the name, which has parentheses around it and may have some.
	_, state, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
