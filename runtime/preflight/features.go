package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// askTimeout bounds the wait for an OCI runtime that says what it can do.
const askTimeout = 10 * time.Second

// Features are what the OCI runtime and the kernel can do together.
type Features struct {
	Seccomp           bool
	RecursiveReadOnly bool
}

// Features returns what the pod's OCI runtime says of itself ("runc features"). One that is
// too old to say so has seccomp, as those of the distributions have, and nothing newer.
func (m *Machine) Features(ctx context.Context, pod *v1.Pod) Features {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := pod.Annotations[podspec.AnnotationRuntimeHandler]
	if f, ok := m.known[name]; ok {
		return f
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	f := Features{Seccomp: true}
	if text, err := m.Runtime(ctx, name); err == nil {
		f = parse(text)
	}
	f.RecursiveReadOnly = f.RecursiveReadOnly && hasMountSetattr()
	if m.known == nil {
		m.known = map[string]Features{}
	}
	m.known[name] = f
	return f
}

func parse(text []byte) Features {
	var f features.Features
	if err := json.Unmarshal(text, &f); err != nil {
		return Features{Seccomp: true}
	}
	return Features{
		Seccomp:           f.Linux != nil && f.Linux.Seccomp != nil && f.Linux.Seccomp.Enabled != nil && *f.Linux.Seccomp.Enabled,
		RecursiveReadOnly: slices.Contains(f.MountOptions, "rro"),
	}
}

// hasMountSetattr asks the kernel for the call that makes mounts read-only recursively,
// which is there since Linux 5.12.
func hasMountSetattr() bool {
	return !errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS)
}
