// Package sysctl sets the kernel parameters that pods have of their own.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/netns"
)

// Parameter is a kernel parameter of one of the pod's namespaces.
type Parameter struct {
	name  string // as the manifest has it
	path  string // below /proc/sys
	value string
}

// Of returns the pod's kernel parameters. One that belongs to a namespace that the
// pod shares with the host, or to none, is refused: it would change the host.
func Of(pod *v1.Pod) ([]Parameter, error) {
	if pod.Spec.SecurityContext == nil {
		return nil, nil
	}
	given := pod.Spec.SecurityContext.Sysctls
	all := make([]Parameter, 0, len(given))
	for i, s := range given {
		path, err := pathOf(s.Name)
		if err != nil {
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %w", i, err)
		}
		switch owner := namespaceOf(path); {
		case owner == "":
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q is not namespaced, it would change the host", i, s.Name)
		case owner == "net" && pod.Spec.HostNetwork:
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q with spec.hostNetwork would change the host", i, s.Name)
		case owner == "ipc" && pod.Spec.HostIPC:
			return nil, failure.Permanentf("spec.securityContext.sysctls[%d]: %q with spec.hostIPC would change the host", i, s.Name)
		}
		all = append(all, Parameter{name: s.Name, path: path, value: s.Value})
	}
	return all, nil
}

// pathOf turns a parameter's name into its path below /proc/sys. A name whose first
// separator is a slash uses slashes for levels and dots inside them (sysctl.d(5)).
func pathOf(name string) (string, error) {
	path := name
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			default:
				return r
			}
		}, name)
	}
	if path == "" || !filepath.IsLocal(path) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%q is not the name of a kernel parameter", name)
	}
	return path, nil
}

// namespaceOf says which namespace the parameter belongs to: "net", "ipc", or "" for
// none (k8s.io/component-helpers/node/util/sysctl GetNamespace).
func namespaceOf(path string) string {
	switch {
	case strings.HasPrefix(path, "net/"):
		return "net"
	case path == "kernel/sem",
		strings.HasPrefix(path, "kernel/shm"),
		strings.HasPrefix(path, "kernel/msg"),
		strings.HasPrefix(path, "fs/mqueue/"):
		return "ipc"
	default:
		return ""
	}
}

// Apply sets the parameters in the pod's namespaces. It comes after the
// network is attached, since a parameter may name the pod's interface. root is the host's
// ID of the pod's root user: in a user namespace only that one may set those of ipc.
func Apply(namespaces []netns.Pin, all []Parameter, root int) error {
	if len(all) == 0 {
		return nil
	}
	return netns.Inside(namespaces, func() error {
		for _, s := range all {
			user := 0
			if namespaceOf(s.path) == "ipc" {
				user = root
			}
			if err := as(user, func() error { return write(s) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// as runs f with the effective user of the given ID, for the thread alone.
func as(user int, f func() error) error {
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

func write(s Parameter) error {
	f, err := os.OpenFile(filepath.Join("/proc/sys", s.path), os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		return failure.Permanentf("setting kernel parameter %q: this kernel does not have it: %w", s.name, err)
	}
	if err != nil {
		return fmt.Errorf("setting kernel parameter %q: %w", s.name, err)
	}
	_, err = f.WriteString(s.value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return failure.Permanentf("setting kernel parameter %q to %q: %w", s.name, s.value, err)
	}
	return nil
}
