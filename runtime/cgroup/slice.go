package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/flock"
)

// The cgroup drivers, by the kubelet's names.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

// SetDriver chooses the driver for new pods. A pod that exists keeps the one it has. An error
// says why the machine does not have the driver.
func (t *Tree) SetDriver(driver string) error {
	t.systemd = driver == DriverSystemd
	if !t.systemd {
		return nil
	}
	if err := SystemdBooted(); err != nil {
		return fmt.Errorf("cgroup driver %s: %w (driver %s does not need it)", driver, err, DriverCgroupfs)
	}
	return nil
}

// suffix ends the name of a slice.
const suffix = ".slice"

// sliceName returns the name of the slice for a cgroup whose path has these elements: a slice
// a-b.slice is in a.slice, so a hyphen in an element becomes an underscore
// (pkg/kubelet/cm.CgroupName.ToSystemd).
func sliceName(elements ...string) string {
	escaped := make([]string, len(elements))
	for i, e := range elements {
		escaped[i] = strings.ReplaceAll(e, "-", "_")
	}
	return strings.Join(escaped, "-") + suffix
}

// slicePath returns the path of the slice's cgroup below the cgroup root.
func slicePath(slice string) string {
	var path strings.Builder
	name := strings.TrimSuffix(slice, suffix)
	for i := range len(name) {
		if name[i] == '-' {
			path.WriteString("/" + name[:i] + suffix)
		}
	}
	return path.String() + "/" + slice
}

// startSlice starts the pod's slice. Until the lock that it returns is closed, nobody stops
// the slices above it for being empty: those who do that lock the root of the cpu hierarchy
// exclusively, those who start pods in slices or set their shares lock it shared.
func (t Tree) startSlice(ctx context.Context, pod *v1.Pod, at location) (*os.File, error) {
	lock, err := flock.Open(t.dirs["cpu"], unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	description := fmt.Sprintf("runonce: pod %s/%s", pod.Namespace, pod.Name)
	err = t.units.Start(ctx, at.slice, description, t.properties(pod, at))
	if err == nil && !t.V2 {
		err = t.units.Start(ctx, deviceSlice(at.slice), description+": its devices", []dbus.Property{property("DevicePolicy", "strict")})
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// deviceSlice is a slice without processes in the pod's, which stops with it. It has a device
// policy, so that the slices above it have the v1 controller devices before the first container
// starts: when a slice gets that, systemd moves all processes below out of their devices
// cgroups, and nothing would keep a container from the machine's devices.
func deviceSlice(slice string) string {
	return strings.TrimSuffix(slice, suffix) + "-devices" + suffix
}

// stopSlice stops the pod's slice, which must have no processes: systemd would wait for those that
// ignore SIGTERM.
func (t Tree) stopSlice(ctx context.Context, at location) error {
	busy, err := populated(filepath.Join(t.dirs["cpu"], at.path))
	if gone(err) {
		return nil
	}
	if err == nil && busy {
		err = t.killIn(ctx, at.path, "")
	}
	if err != nil {
		return err
	}
	return t.units.Stop(ctx, at.slice)
}

// populated reports whether the cgroup dir, or one below it, has a process.
func populated(dir string) (bool, error) {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(procs) > 0 {
		return err == nil, err
	}
	below, err := children(dir, 0)
	if err != nil {
		return false, err
	}
	for _, name := range below {
		busy, err := populated(filepath.Join(dir, name))
		if busy || err != nil && !gone(err) {
			return busy, err
		}
	}
	return false, nil
}

// children returns the names of the cgroups in the cgroup dir. It stops looking once there are enough, zero for all of
// them.
func children(dir string, enough int) (names []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(64)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if errors.Is(err, io.EOF) || enough > 0 && len(names) >= enough {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
