package able

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// askTimeout bounds the wait for an OCI runtime that says what it can do.
const askTimeout = 10 * time.Second

// Features are what the OCI runtime and the kernel can do together.
type Features struct {
	Seccomp           bool
	RecursiveReadOnly bool
}

// Features returns what the OCI runtime says of itself ("runc features"). One that is too
// old to say so has seccomp, as those of the distributions have, and nothing newer.
func (m *Machine) Features(ctx context.Context) Features {
	m.features.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		text, err := m.Runtime(ctx, "features")
		if m.known = (Features{Seccomp: true}); err == nil {
			m.known = parse(text)
		}
		m.known.RecursiveReadOnly = m.known.RecursiveReadOnly && hasMountSetattr()
	})
	return m.known
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
