package shim

import (
	"context"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"

	"github.com/runonce/runonce/internal/procstat"
)

// Pids also lists a container's first process where the OCI runtime finds none in the
// container's cgroup: runc asks the v1 devices hierarchy, where systemd may have moved it to
// a parent, as it does when a slice or a service gets devices of its own. A containerd that
// connects to the shim would take it for a leaked one and kill the container.
func (s *service) Pids(ctx context.Context, r *taskAPI.PidsRequest) (*taskAPI.PidsResponse, error) {
	resp, err := s.TTRPCTaskService.Pids(ctx, r)
	if err != nil || len(resp.Processes) > 0 {
		return resp, err
	}
	state, err := s.TTRPCTaskService.State(ctx, &taskAPI.StateRequest{ID: r.ID})
	if err == nil && state.Status != tasktypes.Status_STOPPED && procstat.Alive(int(state.Pid)) {
		resp.Processes = append(resp.Processes, &tasktypes.ProcessInfo{Pid: state.Pid})
	}
	return resp, nil
}
