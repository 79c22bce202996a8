// Package preflight says which pods a machine cannot run for want of a feature of its kernel, its
// OCI runtime or its container engine: before anything starts, since such a pod would only
// suffer.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec/profile"
)

// Machine is what pods may need of a machine. It asks for each feature once, and only when
// a pod needs it.
type Machine struct {
	// Files is the root of the machine's files.
	Files fs.FS
	// Runtime returns what the OCI runtime of a handler prints of its features; the empty
	// name is the default's.
	Runtime func(ctx context.Context, handler string) ([]byte, error)
	// CanMapUsers returns why the container engine cannot give containers users of their
	// own, nil when it can.
	CanMapUsers func(ctx context.Context) error

	// AppArmor says that the engine can confine containers by AppArmor.
	AppArmor bool

	mu    sync.Mutex
	known map[string]Features // by handler
}

// Refuse returns what the machine lacks by the UID of the pod that needs it.
func (m *Machine) Refuse(ctx context.Context, pods []*v1.Pod) map[types.UID]string {
	refused := map[types.UID]string{}
	users := sync.OnceValue(func() error { return m.users(ctx) })
	for _, pod := range pods {
		var errs []error
		if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
			errs = append(errs, users())
		}
		for _, c := range podspec.Containers(pod) {
			errs = append(errs, m.container(ctx, pod, c))
		}
		for _, err := range errs {
			if err != nil {
				refused[pod.UID] = err.Error()
				break
			}
		}
	}
	return refused
}

// users returns why no pod can have a user namespace.
func (m *Machine) users(ctx context.Context) error {
	most, err := fs.ReadFile(m.Files, "proc/sys/user/max_user_namespaces")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("spec.hostUsers: false: the kernel has no user namespaces")
	case err == nil && strings.TrimSpace(string(most)) == "0":
		return errors.New("spec.hostUsers: false: the kernel allows no user namespaces: sysctl user.max_user_namespaces is 0")
	}
	if err := m.CanMapUsers(ctx); err != nil {
		return fmt.Errorf("spec.hostUsers: false: %w", err)
	}
	return nil
}

// container returns why the container cannot have what it asks for.
func (m *Machine) container(ctx context.Context, pod *v1.Pod, c *v1.Container) error {
	if kind := profile.SeccompType(pod, c); kind != v1.SeccompProfileTypeUnconfined && !m.Features(ctx, pod).Seccomp {
		return fmt.Errorf("container %q: seccomp profile %s: the OCI runtime was built without seccomp", c.Name, kind)
	}
	for _, vm := range c.VolumeMounts {
		if vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !m.Features(ctx, pod).RecursiveReadOnly {
			return fmt.Errorf("container %q: volume %q requested recursive read-only mode, but it is not supported by the runtime", c.Name, vm.Name)
		}
	}
	return m.appArmor(profile.AppArmor(pod, c), c.Name)
}
