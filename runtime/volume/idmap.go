package volume

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// MapUsers makes idmapped mounts of the container's bind mounts, for the pod's user namespace,
// whose file is userNS: what belongs to root on the host belongs to the container's root,
// which is an unprivileged user of the host. The OCI runtime could do this itself, but runc
// only since 1.2. The sources of the mounts become the idmapped ones.
func (m *Manager) MapUsers(pod *v1.Pod, container, userNS string, mounts []specs.Mount) error {
	ns, err := os.Open(userNS)
	if err != nil {
		return fmt.Errorf("opening the user namespace: %w", err)
	}
	defer func() { _ = ns.Close() }()
	for i := range mounts {
		if mounts[i].Type != "bind" {
			continue
		}
		target := m.dir(pod, idmapDir, container, strconv.Itoa(i))
		if err := m.mapUsers(&mounts[i], target, ns); err != nil {
			return fmt.Errorf("mapping the users of %s: %w", mounts[i].Destination, err)
		}
	}
	return nil
}

func (m *Manager) mapUsers(bind *specs.Mount, target string, ns *os.File) error {
	info, err := os.Stat(bind.Source)
	if err != nil {
		return err
	}
	if err := m.prepareTarget(target, info.IsDir()); err != nil {
		return err
	}
	flags, err := m.Mounter.MapUsers(bind.Source, target, ns, propagation(bind.Options))
	if err != nil {
		return err
	}
	bind.Source = target
	// A user namespace may not remove these, so the runtime has to keep them.
	bind.Options = append(bind.Options[:len(bind.Options):len(bind.Options)], flags...)
	return nil
}

// propagation returns the propagation for the idmapped mount, which the mount in the
// container is made from, so that the latter can have the one in its options.
func propagation(options []string) uint64 {
	for _, p := range propagations {
		if slices.Contains(options, p.option) {
			return uint64(p.flag)
		}
	}
	return unix.MS_PRIVATE
}
