package runtime

import (
	"context"

	specs "github.com/opencontainers/runtime-spec/specs-go"
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

// Volumes makes the directories and files that a pod's containers mount.
type Volumes interface {
	// Setup makes every volume of the pod. It is safe to repeat.
	Setup(ctx context.Context, pod *v1.Pod) error
	// Refresh renews the files in the pod's volumes that have changed or expire.
	Refresh(ctx context.Context, pod *v1.Pod) error
	// Mounts returns the OCI mounts for the container's volumeMounts, parents before
	// children. env is the container's final environment, for subPathExpr.
	Mounts(pod *v1.Pod, c *v1.Container, env []string) ([]specs.Mount, error)
	// MapUsers makes idmapped mounts of the mounts for a container of a pod with a user
	// namespace. userNS is the file that holds the namespace.
	MapUsers(pod *v1.Pod, container, userNS string, mounts []specs.Mount) error
	// ReadFile returns a file of one of the pod's volumes, for variables that come from it.
	ReadFile(pod *v1.Pod, volume, path string) ([]byte, error)
	// ImageDir returns the directory for the image of an image volume.
	ImageDir(pod *v1.Pod, v *v1.Volume) (string, error)
	// Usage returns how many bytes the pod's emptyDir volumes on disk use, by name.
	Usage(ctx context.Context, pod *v1.Pod) (map[string]int64, error)
	// Teardown unmounts and removes the pod's volumes. Absent ones are no error.
	Teardown(ctx context.Context, pod *v1.Pod) error
}

// Cgroups makes and removes the cgroup of a pod, the parent of its containers' cgroups.
type Cgroups interface {
	// Ensure makes the pod's cgroup with its limits and returns the parent for the cgroups of
	// its containers: a path below the cgroup root, or the name of a slice.
	Ensure(ctx context.Context, pod *v1.Pod) (string, error)
	// Remove removes the pod's cgroup. An absent one is no error.
	Remove(ctx context.Context, pod *v1.Pod) error
}

// Devices are the machine's devices that containers have to ask for.
type Devices interface {
	// Kinds returns the names of the devices of each kind. A pod asks for a number of devices
	// by the kind's name, as an extended resource.
	Kinds() map[string][]string
	// Inject edits the spec of a container that has the devices.
	Inject(spec *specs.Spec, devices []string) error
}
