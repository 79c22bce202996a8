package runtime

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// Sandboxes makes and removes the namespaces and the network that a pod's containers share.
type Sandboxes interface {
	// Ensure returns the pod's sandbox and makes it first if it does not exist. After an error
	// nothing of it is left: no namespace, address or port rule. The caller holds the lock.
	Ensure(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error)
	// Get returns the pod's sandbox, or an error that wraps fs.ErrNotExist when it has
	// none or its namespaces are gone.
	Get(ctx context.Context, pod *v1.Pod) (engine.Sandbox, error)
	// Remove releases the pod's addresses and rules and removes its namespaces. A pod
	// without a sandbox is no error.
	Remove(ctx context.Context, pod *v1.Pod, lock record.Lock) error
}

// Cgroups makes and removes the cgroup of a pod, the parent of its containers' cgroups.
type Cgroups interface {
	// Ensure makes the pod's cgroup with its limits and returns the parent for the cgroups of
	// its containers: a path below the cgroup root, or the name of a slice.
	Ensure(ctx context.Context, pod *v1.Pod) (string, error)
	// Kill kills what runs in the cgroup of a container of the pod, or of all without an ID.
	Kill(ctx context.Context, pod *v1.Pod, id string) error
	// Remove removes the pod's cgroup, and kills what runs there. An absent one is no error.
	Remove(ctx context.Context, pod *v1.Pod) error
}
