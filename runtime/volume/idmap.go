package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/volume/mount"
)

// idmapDir holds what the containers of a pod with a user namespace mount.
const idmapDir = "volume-idmaps"

// MapUsers has the container see what it mounts from the host with the users of the pod's
// user namespace, which userNS is the file of: what belongs to root on the host belongs to
// root in the container, who is nobody of importance on the host. The OCI runtime could do
// the same, but not before runc 1.2. It changes the sources of the mounts.
func (m *Manager) MapUsers(pod *v1.Pod, container, userNS string, mounts []specs.Mount) error {
	ns, err := os.Open(userNS)
	if err != nil {
		return fmt.Errorf("opening the user namespace: %w", err)
	}
	defer func() { _ = ns.Close() }()
	for i := range mounts {
		one := &mounts[i]
		if one.Type != "bind" {
			continue
		}
		target := m.dir(pod, idmapDir, container, strconv.Itoa(i))
		if err := m.mapUsers(one, target, ns); err != nil {
			return fmt.Errorf("mapping the users of %s: %w", one.Destination, err)
		}
	}
	return nil
}

func (m *Manager) mapUsers(one *specs.Mount, target string, ns *os.File) error {
	info, err := os.Stat(one.Source)
	if err != nil {
		return err
	}
	if err := m.prepareTarget(target, info.IsDir()); err != nil {
		return err
	}
	flags, err := m.mounter().MapUsers(one.Source, target, ns, propagation(one.Options))
	if errors.Is(err, mount.ErrNotMappable) {
		return failure.FailedMountf("%w", err)
	}
	if err != nil {
		return err
	}
	one.Source = target
	// A user namespace may not take these away, so the runtime has to ask for them too.
	one.Options = append(one.Options[:len(one.Options):len(one.Options)], flags...)
	return nil
}

// propagation is that of a copy of a mount, so that the mount in the container gets the
// one that its options ask for.
func propagation(options []string) uint64 {
	switch {
	case slices.Contains(options, "rshared"):
		return 0
	case slices.Contains(options, "rslave"):
		return unix.MS_SLAVE
	}
	return unix.MS_PRIVATE
}

// mappedDir is where MapUsers has put mounts of the pod.
func (m *Manager) mappedDir(pod *v1.Pod) string { return filepath.Join(m.dir(pod), idmapDir) }
