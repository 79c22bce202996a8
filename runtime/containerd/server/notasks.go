package server

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/errdefs"
)

// noTasks stands in for containerd's tasks in a server that only has the stores.
type noTasks struct{}

func (noTasks) ID() string { return "none" }

func (noTasks) Create(context.Context, string, runtime.CreateOpts) (runtime.Task, error) {
	return nil, fmt.Errorf("creating a task: %w", errdefs.ErrNotImplemented)
}

func (noTasks) Get(_ context.Context, id string) (runtime.Task, error) {
	return nil, fmt.Errorf("task %q: %w", id, errdefs.ErrNotFound)
}

func (noTasks) Tasks(context.Context, bool) ([]runtime.Task, error) { return nil, nil }

func (noTasks) Delete(_ context.Context, id string) (*runtime.Exit, error) {
	return nil, fmt.Errorf("task %q: %w", id, errdefs.ErrNotFound)
}
