package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/cgroup/systemd"
	"github.com/runonce/runonce/runtime/ocispec/resources"
)

// Drivers that make cgroups, by the kubelet's names.
const (
	DriverFiles   = "cgroupfs"
	DriverSystemd = "systemd"
)

// Units starts and stops slices of systemd, with those that they are in.
type Units interface {
	// Start starts the slice with its limits. One that is there gets the limits.
	Start(ctx context.Context, slice, description string, limits []systemd.Property) error
	// Set gives limits to a slice that is there.
	Set(ctx context.Context, slice string, limits []systemd.Property) error
	// Stop stops the slice and all that is in it. One that is not there is no error.
	Stop(ctx context.Context, slice string) error
}

// Drive chooses the driver of new pods. An error says why the machine does not have it.
func (t *Tree) Drive(driver string) error {
	t.Slices = driver == DriverSystemd
	if !t.Slices {
		return nil
	}
	if err := systemd.Booted(); err != nil {
		return fmt.Errorf("cgroup driver %s: %w (driver %s needs none)", driver, err, DriverFiles)
	}
	return nil
}

// startSlice starts the pod's slice. Until it is released no slice above it is taken for an
// empty one.
func (t Tree) startSlice(ctx context.Context, pod *v1.Pod, at place) (release func(), err error) {
	release, err = t.lock(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	description := fmt.Sprintf("runonce: pod %s/%s", pod.Namespace, pod.Name)
	err = t.Units.Start(ctx, at.slice, description, t.properties(pod))
	if err == nil && !t.V2 {
		err = t.Units.Start(ctx, withDevices(at.slice), description+": its devices", []systemd.Property{{Name: "DevicePolicy", Value: "strict"}})
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// withDevices is a slice without processes in the pod's. It has a device policy, so that the
// slices above it have the v1 controller of devices before the first container comes: when a
// slice gets it, systemd moves all processes below out of their devices cgroups, and nothing
// would keep a container from the machine's devices. It is stopped with the pod's.
func withDevices(slice string) string {
	return strings.TrimSuffix(slice, systemd.Suffix) + "-devices" + systemd.Suffix
}

// stopSlice stops the pod's slice, which must have no process: systemd would kill it.
func (t Tree) stopSlice(ctx context.Context, at place) error {
	dir := filepath.Join(t.dirs["cpu"], at.path)
	busy, err := populated(dir)
	if gone(err) {
		return nil
	}
	if err == nil && busy {
		err = fmt.Errorf("stopping %s: it has processes: %w", at.slice, unix.EBUSY)
	}
	if err != nil {
		return err
	}
	return t.Units.Stop(ctx, at.slice)
}

// stopEmpty stops the slices above the place as far as no pod is in them.
func (t Tree) stopEmpty(ctx context.Context, at place) error {
	release, err := t.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	for up := at.above(); up.slice != ""; up = up.above() {
		below, err := children(filepath.Join(t.dirs["cpu"], up.path))
		if err != nil && !gone(err) {
			return err
		}
		if len(below) > 0 {
			return nil
		}
		if err := t.Units.Stop(ctx, up.slice); err != nil {
			return err
		}
		for _, root := range t.hierarchies() {
			// What systemd has removed, or others still use, stays as it is.
			_ = os.Remove(filepath.Join(root, up.path))
		}
	}
	return nil
}

// lock holds back, or is held back by, those that stop slices without pods: others start pods
// in them or weigh them.
func (t Tree) lock(how int) (release func(), err error) {
	dir := t.dirs["cpu"]
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), d.Close())
	}
	return func() { _ = d.Close() }, nil // which unlocks it
}

// populated reports whether the cgroup dir, or one below it, has a process.
func populated(dir string) (bool, error) {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(procs) > 0 {
		return err == nil, err
	}
	below, err := children(dir)
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

// children returns the names of the cgroups in the cgroup dir.
func children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// percent is the quota that stands for a hundredth of a CPU. Systemd knows no finer one.
const percent = resources.QuotaPeriod / 100

// properties returns what systemd is told of the pod's slice: the same as settings, for it
// sets them anew when it reloads its units.
func (t Tree) properties(pod *v1.Pod) []systemd.Property {
	limits := resources.ForPod(pod)
	io, memory := "BlockIOAccounting", "MemoryLimit"
	if t.V2 {
		io, memory = "IOAccounting", "MemoryMax"
	}
	list := []systemd.Property{
		// The controllers must be there before the first process is.
		{Name: "CPUAccounting", Value: true},
		{Name: "MemoryAccounting", Value: true},
		{Name: "TasksAccounting", Value: true},
		{Name: io, Value: true},
		t.weight(limits.Shares),
	}
	if limits.Quota > 0 {
		const usec = 1_000_000 / resources.QuotaPeriod
		list = append(list, systemd.Property{Name: "CPUQuotaPerSecUSec", Value: uint64(wholePercents(limits.Quota)) * usec})
	}
	if limits.Memory > 0 {
		list = append(list, systemd.Property{Name: memory, Value: uint64(limits.Memory)})
	}
	if t.PidsLimit > 0 {
		list = append(list, systemd.Property{Name: "TasksMax", Value: uint64(t.PidsLimit)})
	}
	return list
}

// weight returns the property that gives a slice its share of the CPU.
func (t Tree) weight(shares uint64) systemd.Property {
	if t.V2 {
		return systemd.Property{Name: "CPUWeight", Value: resources.SharesToWeight(shares)}
	}
	return systemd.Property{Name: "CPUShares", Value: shares}
}

// wholePercents rounds a quota up to what systemd can express, as runc does, so that the
// quotas of the containers fit into it.
func wholePercents(quota int64) int64 {
	return (quota + percent - 1) / percent * percent
}
