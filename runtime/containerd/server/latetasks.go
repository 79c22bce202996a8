package server

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/core/runtime"
	shims "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
)

// lateTasks stands in for containerd's tasks until they are needed: to know them, containerd connects to each shim and
// asks it twice.
type lateTasks struct {
	get    func() (runtime.PlatformRuntime, error)
	loaded chan struct{} // closed when they are known
}

// newLateTasks returns the tasks of the shim manager that was started.
func newLateTasks(ic *plugin.InitContext, started *plugin.Set) *lateTasks {
	l := &lateTasks{loaded: make(chan struct{})}
	l.get = sync.OnceValues(func() (runtime.PlatformRuntime, error) {
		defer close(l.loaded)
		tasks, err := loadTasks(ic, started)
		if err != nil {
			return nil, fmt.Errorf("connecting to the shims: %w", err)
		}
		return tasks, nil
	})
	return l
}

// loadTasks does what containerd does when it starts.
func loadTasks(ic *plugin.InitContext, started *plugin.Set) (*shims.TaskManager, error) {
	manager, err := find[*shims.ShimManager](started, plugins.ShimPlugin, "manager")
	if err != nil {
		return nil, err
	}
	root, state := ic.Properties[plugins.PropertyRootDir], ic.Properties[plugins.PropertyStateDir]
	for _, dir := range []string{root, state} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	return shims.NewTaskManager(ic.Context, root, state, manager)
}

func (*lateTasks) ID() string { return plugins.RuntimePluginV2.String() + ".task" }

func (l *lateTasks) Create(ctx context.Context, id string, o runtime.CreateOpts) (runtime.Task, error) {
	tasks, err := l.get()
	if err != nil {
		return nil, err
	}
	return tasks.Create(ctx, id, o)
}

func (l *lateTasks) Get(ctx context.Context, id string) (runtime.Task, error) {
	tasks, err := l.get()
	if err != nil {
		return nil, err
	}
	return tasks.Get(ctx, id)
}

// Tasks returns the tasks, but none if it is asked for those of all namespaces: the task service does that once, when it
// starts, to have them monitored, and nothing does so here.
func (l *lateTasks) Tasks(ctx context.Context, all bool) ([]runtime.Task, error) {
	if all {
		return nil, nil
	}
	tasks, err := l.get()
	if err != nil {
		return nil, err
	}
	return tasks.Tasks(ctx, all)
}

func (l *lateTasks) Delete(ctx context.Context, id string) (*runtime.Exit, error) {
	tasks, err := l.get()
	if err != nil {
		return nil, err
	}
	return tasks.Delete(ctx, id)
}
