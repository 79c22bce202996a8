package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/cgroup/systemd"
	"github.com/runonce/runonce/runtime/ocispec/resources"
)

// weighClass gives the cgroup of the pod's class its share of the CPU: the least for
// best-effort pods, for burstable ones what they ask for together
// (pkg/kubelet/cm.qosContainerManagerImpl). Guaranteed pods have no such cgroup.
func (t Tree) weighClass(ctx context.Context, pod *v1.Pod, at place) error {
	class := podspec.QOS(pod)
	if class == v1.PodQOSGuaranteed {
		return nil
	}
	if at.slice != "" {
		release, err := t.lock(unix.LOCK_SH)
		if err != nil {
			return err
		}
		defer release()
	}
	up := at.above()
	dir := filepath.Join(t.dirs["cpu"], up.path)
	if class == v1.PodQOSBestEffort {
		return t.writeShares(ctx, up, resources.MinShares)
	}
	// Pods come and go at the same time, also by other processes: one after the other, so
	// that the last has seen them all.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	sum, err := t.sumShares(d)
	if err != nil {
		return err
	}
	return t.writeShares(ctx, up, sum)
}

// sumShares adds up the shares of the cgroups in the directory.
func (t Tree) sumShares(d *os.File) (uint64, error) {
	entries, err := d.ReadDir(-1)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		shares, err := t.readShares(int(d.Fd()), e.Name())
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += shares
	}
	return min(max(sum, resources.MinShares), resources.MaxShares), nil
}

// sharesFile returns the file that holds a cgroup's share of the CPU.
func (t Tree) sharesFile() string {
	if t.V2 {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// readShares reads the shares of the cgroup name in the directory dirfd. There may be a
// hundred of them, so it makes no more system calls than it must.
func (t Tree) readShares(dirfd int, name string) (uint64, error) {
	fd, err := unix.Openat(dirfd, name+"/"+t.sharesFile(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [32]byte
	k, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(buf[:k])), 10, 64)
	if err != nil || !t.V2 {
		return n, err
	}
	return resources.WeightToShares(n), nil
}

func (t Tree) writeShares(ctx context.Context, at place, shares uint64) error {
	weight := t.weight(shares)
	if t.V2 {
		shares = resources.SharesToWeight(shares)
	}
	path := filepath.Join(t.dirs["cpu"], at.path, t.sharesFile())
	value := strconv.FormatUint(shares, 10)
	now, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(now)) == value {
		return err
	}
	if at.slice != "" {
		if err := t.Units.Set(ctx, at.slice, []systemd.Property{weight}); err != nil {
			return err
		}
	}
	return writeFile(path, value)
}
