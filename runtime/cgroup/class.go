package cgroup

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/podspec"
)

// setClassShares gives the cgroup of the pod's QoS class its share of the CPU: the least for
// best-effort pods, for burstable ones the sum of their requests
// (pkg/kubelet/cm.qosContainerManagerImpl). Guaranteed pods have no such cgroup.
func (t Tree) setClassShares(ctx context.Context, pod *v1.Pod, at location) error {
	class := podspec.QOS(pod)
	if class == v1.PodQOSGuaranteed {
		return nil
	}
	if at.slice != "" {
		root, err := flock.Open(t.dirs["cpu"], unix.LOCK_SH)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
	}
	up := at.above()
	if class == v1.PodQOSBestEffort {
		return t.setBestEffort(ctx, up)
	}
	// Other processes add and remove pods at the same time: one after the other, so that the
	// last one counts them all.
	dir, err := flock.Open(filepath.Join(t.dirs["cpu"], up.path), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	sum, err := t.sumShares(dir, up.path, path.Base(at.path))
	if err != nil {
		return err
	}
	return t.writeShares(ctx, up, sum)
}

// sharesTimeout bounds how long systemd may take to set the share of pods that are stopped.
const sharesTimeout = 5 * time.Second

// Stopping lets the processes of a pod exit without delay until done is called, however little of the CPU the pod has.
func (t Tree) Stopping(ctx context.Context, pod *v1.Pod) (done func()) {
	if podspec.QOS(pod) != v1.PodQOSBestEffort {
		return func() {}
	}
	add := func(n int) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharesTimeout)
		defer cancel()
		t.shares.mu.Lock()
		t.shares.stopping += n
		t.shares.mu.Unlock()
		// If this fails, as it does once the last pod is removed, the others stop all the same, maybe later.
		_ = t.setClassShares(ctx, pod, t.locate(pod))
	}
	add(1)
	return func() { add(-1) }
}

// setBestEffort sets the share of the CPU of all best-effort pods: the least, but the default one while this process stops
// some of them. With the least share, the last threads of their processes may not come to exit for minutes, while whoever
// waits for that waits in a loop in the kernel (proc_flush_pid of Linux 6.18), which takes all processors. If this process
// is killed, the next best-effort pod that comes or goes has the least share set again.
func (t Tree) setBestEffort(ctx context.Context, class location) error {
	t.shares.mu.Lock()
	defer t.shares.mu.Unlock()
	if t.shares.stopping > 0 {
		return t.writeShares(ctx, class, podspec.DefaultShares)
	}
	return t.writeShares(ctx, class, podspec.MinShares)
}

// classShares remembers the shares of the pods of QoS classes, so that a process that starts a thousand pods does not read
// those of all others for each.
type classShares struct {
	mu       sync.Mutex
	classes  map[string]classSum // by the path of the class
	stopping int                 // best-effort pods, by calls of Stopping
}

// classSum holds for as long as the class has the sum: another process that changes a pod changes that as well.
type classSum struct {
	sum  uint64
	pods map[string]uint64 // by the name of their cgroups
}

// sumShares adds up the shares of the cgroups in the directory of a class. That of the pod is read in any case.
func (t Tree) sumShares(d *os.File, class, pod string) (uint64, error) {
	t.shares.mu.Lock()
	defer t.shares.mu.Unlock()
	known := t.shares.classes[class]
	now, err := t.readShares(int(d.Fd()), ".")
	if err != nil {
		return 0, err
	}
	if now != t.rounded(known.sum) {
		known.pods = nil
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return 0, err
	}
	var sum uint64
	pods := make(map[string]uint64, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		shares, ok := known.pods[e.Name()]
		if !ok || e.Name() == pod {
			if shares, err = t.readShares(int(d.Fd()), e.Name()); gone(err) {
				continue
			}
			if err != nil {
				return 0, err
			}
		}
		pods[e.Name()] = shares
		sum += shares
	}
	sum = min(max(sum, podspec.MinShares), podspec.MaxShares)
	t.shares.classes[class] = classSum{sum, pods}
	return sum, nil
}

// rounded returns the shares as they are read from a file to which they have been written.
func (t Tree) rounded(shares uint64) uint64 {
	if t.V2 {
		return podspec.WeightToShares(t.fileShares(shares))
	}
	return shares
}

// readShares reads the shares of the cgroup name in the directory dirfd. It makes as few system
// calls as possible, since there may be a hundred pods.
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
	return podspec.WeightToShares(n), nil
}

// writeShares sets the share of the CPU of a QoS class, unless it is the same.
func (t Tree) writeShares(ctx context.Context, at location, shares uint64) error {
	path := filepath.Join(t.dirs["cpu"], at.path, t.sharesFile())
	value := strconv.FormatUint(t.fileShares(shares), 10)
	now, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(now)) == value {
		return err
	}
	if at.slice != "" {
		if err := t.units.Set(ctx, at.slice, []dbus.Property{t.sharesProperty(shares)}); err != nil {
			return err
		}
	}
	return writeFile(path, value)
}
