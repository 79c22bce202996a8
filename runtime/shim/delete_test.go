package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
)

var errRuns = errors.New("cannot delete a running process")

// ending is the service of one container: it has pids for a while, and refuses to be deleted
// until its exit is known, as containerd's does.
type ending struct {
	taskAPI.TTRPCTaskService
	pids    int
	exit    <-chan struct{} // closed when it is known
	bundle  string
	deleted bool
}

func (e *ending) Delete(context.Context, *taskAPI.DeleteRequest) (*taskAPI.DeleteResponse, error) {
	if _, err := os.Stat(e.bundle); err != nil {
		return nil, err // runc cannot log there
	}
	select {
	case <-e.exit:
		e.deleted = true
		return &taskAPI.DeleteResponse{Pid: 7, ExitStatus: 137}, nil
	default:
		return nil, errRuns
	}
}

func (e *ending) Pids(context.Context, *taskAPI.PidsRequest) (*taskAPI.PidsResponse, error) {
	return &taskAPI.PidsResponse{Processes: make([]*tasktypes.ProcessInfo, e.pids)}, nil
}

// State does not know yet that the process is gone.
func (e *ending) State(context.Context, *taskAPI.StateRequest) (*taskAPI.StateResponse, error) {
	return &taskAPI.StateResponse{Status: tasktypes.Status_RUNNING, Pid: nobody}, nil
}

func (e *ending) Wait(ctx context.Context, _ *taskAPI.WaitRequest) (*taskAPI.WaitResponse, error) {
	select {
	case <-e.exit:
		return &taskAPI.WaitResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestDeleteEndingContainer: a container whose processes are gone is deleted once its exit is
// known, within the time limit of containerd; a running one is refused at once.
func TestDeleteEndingContainer(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for _, tc := range []struct {
		name     string
		pids     int
		exit     time.Duration
		noBundle bool // the bundle is gone
		want     error
		after    time.Duration
	}{
		{name: "ended", exit: 0},
		{name: "ended, its bundle gone", exit: 0, noBundle: true},
		{name: "ending", exit: 3 * time.Second, after: 3 * time.Second},
		{name: "never seen to end", exit: never, want: errRuns, after: endingTimeout},
		{name: "running", pids: 1, exit: never, want: errRuns},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bundle := filepath.Join(t.TempDir(), "bundle")
			if !tc.noBundle {
				if err := os.Mkdir(bundle, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, exit := context.WithTimeout(t.Context(), tc.exit)
				defer exit()
				inner := &ending{pids: tc.pids, exit: ctx.Done(), bundle: bundle}
				s := &service{TTRPCTaskService: inner, containers: map[string]*container{"a": {bundle: bundle}}}
				begun := time.Now()
				_, err := s.Delete(t.Context(), &taskAPI.DeleteRequest{ID: "a"})
				if !errors.Is(err, tc.want) || inner.deleted != (tc.want == nil) {
					t.Errorf("deleted %v, %v", inner.deleted, err)
				}
				if took := time.Since(begun); took != tc.after {
					t.Errorf("it took %s, want %s", took, tc.after)
				}
				if s.container("a") != nil != (tc.want != nil) {
					t.Error("it is known still, or no longer")
				}
			})
			if absent(bundle) != tc.noBundle {
				t.Error("the bundle came or went")
			}
		})
	}
}
