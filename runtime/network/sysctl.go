package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/namespaces"
)

// kernelParameter is a sysctl of one of the pod's namespaces.
type kernelParameter struct {
	v1.Sysctl
	path string // below /proc/sys
	ipc  bool   // of the ipc namespace, not of the net namespace
}

// kernelParameters returns the pod's kernel parameters. One that belongs to a namespace that
// the pod shares with the host, or to none, is refused: it would change the host.
func kernelParameters(pod *v1.Pod) ([]kernelParameter, error) {
	if pod.Spec.SecurityContext == nil {
		return nil, nil
	}
	given := pod.Spec.SecurityContext.Sysctls
	all := make([]kernelParameter, 0, len(given))
	for i, s := range given {
		path, err := sysctlPath(s.Name)
		if err != nil {
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %w", i, err)
		}
		namespace, _, _ := sysctl.GetNamespace(s.Name)
		switch {
		case namespace != sysctl.NetNamespace && namespace != sysctl.IPCNamespace:
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q is not namespaced, it would change the host", i, s.Name)
		case namespace == sysctl.NetNamespace && pod.Spec.HostNetwork:
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q with spec.hostNetwork would change the host", i, s.Name)
		case namespace == sysctl.IPCNamespace && pod.Spec.HostIPC:
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q with spec.hostIPC would change the host", i, s.Name)
		}
		all = append(all, kernelParameter{Sysctl: s, path: path, ipc: namespace == sysctl.IPCNamespace})
	}
	return all, nil
}

// sysctlPath turns a parameter's name into its path below /proc/sys. In the normalized name
// dots separate the levels, and a slash stands for a dot inside one (sysctl.d(5)).
func sysctlPath(name string) (string, error) {
	path := strings.NewReplacer(".", "/", "/", ".").Replace(sysctl.NormalizeName(name))
	if path == "" || !filepath.IsLocal(path) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%q is not the name of a kernel parameter", name)
	}
	return path, nil
}

// setKernelParameters sets the parameters in the pod's namespaces. It comes after the
// network is attached, since a parameter may name the pod's interface. root is the host's
// ID of the pod's root user: in a user namespace only that one may set those of ipc.
func setKernelParameters(pins []namespaces.Pin, all []kernelParameter, root int) error {
	if len(all) == 0 {
		return nil
	}
	return namespaces.Inside(pins, func() error {
		for _, p := range all {
			user := 0
			if p.ipc {
				user = root
			}
			if err := asUser(user, p.set); err != nil {
				return err
			}
		}
		return nil
	})
}

// asUser runs f with the effective user of the given ID, for this thread alone.
func asUser(user int, f func() error) error {
	if user == 0 {
		return f()
	}
	const same = ^uintptr(0)
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(user), same); err != 0 {
		return fmt.Errorf("becoming user %d: %w", user, err)
	}
	err := f()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		return fmt.Errorf("becoming root again: %w", errno)
	}
	return err
}

func (p kernelParameter) set() error {
	f, err := os.OpenFile(filepath.Join("/proc/sys", p.path), os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		return failure.Permanentf("setting kernel parameter %q: this kernel does not have it: %w", p.Name, err)
	}
	if err != nil {
		return fmt.Errorf("setting kernel parameter %q: %w", p.Name, err)
	}
	_, err = f.WriteString(p.Value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return failure.Permanentf("setting kernel parameter %q to %q: %w", p.Name, p.Value, err)
	}
	return nil
}
