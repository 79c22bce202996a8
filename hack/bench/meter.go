package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The benchmark's cgroups: one for the daemon, one for the program that is measured.
const (
	ownGroup    = "runonce-bench"
	daemonGroup = ownGroup + "/daemon"
	clientGroup = ownGroup + "/client"
)

// sample is one measured run.
type sample struct {
	wall time.Duration // process start to exit
	cpu  time.Duration // of the client, the daemon, shims, runc and containers
	// other is how many cores all other processes used meanwhile.
	other    float64
	rss      int64 // peak of the client process, bytes
	residual int64 // PSS of the remaining processes that are not containers, bytes
}

// meter measures CPU time by cgroup, so that other work on the machine does not count.
type meter struct {
	root    string // where cgroups with CPU accounting are
	v2      bool
	ignored map[int]bool
}

func newMeter() (*meter, error) {
	m := &meter{root: "/sys/fs/cgroup/cpuacct", ignored: map[int]bool{}}
	if _, err := os.Stat(filepath.Join(m.root, "cpuacct.usage")); err != nil {
		m.root, m.v2 = "/sys/fs/cgroup", true
		if _, err := os.Stat(filepath.Join(m.root, "cgroup.controllers")); err != nil {
			return nil, errors.New("accounting CPU time: neither cpuacct nor cgroup v2 is mounted")
		}
	}
	for _, g := range []string{daemonGroup, clientGroup} {
		if err := os.MkdirAll(filepath.Join(m.root, g), 0o755); err != nil {
			return nil, fmt.Errorf("making cgroup %q: %w", g, err)
		}
	}
	return m, m.enter(clientGroup)
}

// ignore excludes a process from the residual memory.
func (m *meter) ignore(pid int) { m.ignored[pid] = true }

func (m *meter) enter(group string) error {
	err := os.WriteFile(filepath.Join(m.root, group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
	if err != nil {
		return fmt.Errorf("entering cgroup %q: %w", group, err)
	}
	return nil
}

// inGroup runs f, so that its child processes are in the cgroup.
func (m *meter) inGroup(group string, f func() error) error {
	return errors.Join(m.enter(group), f(), m.enter(clientGroup))
}

// close removes the cgroups, including those that the floor leaves in other hierarchies: a
// container's own cgroup is removed with it, but not its parent.
func (m *meter) close() error {
	left, err := filepath.Glob("/sys/fs/cgroup/*/floor")
	errs := []error{err, m.enter(""), m.remove(daemonGroup), m.remove(clientGroup), m.remove(ownGroup)}
	for _, dir := range append(left, "/sys/fs/cgroup/floor") {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *meter) remove(group string) error {
	err := os.Remove(filepath.Join(m.root, group))
	for i := 0; i < 100 && errors.Is(err, syscall.EBUSY); i++ {
		time.Sleep(20 * time.Millisecond)
		err = os.Remove(filepath.Join(m.root, group))
	}
	return err
}

// usage returns the CPU time of cgroups, including those below them. A missing one counts as 0.
func (m *meter) usage(groups []string) (time.Duration, error) {
	var sum time.Duration
	for _, g := range groups {
		name, key, unit := "cpuacct.usage", "", time.Nanosecond
		if m.v2 {
			name, key, unit = "cpu.stat", "usage_usec ", time.Microsecond
		}
		b, err := os.ReadFile(filepath.Join(m.root, g, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of %q: %w", g, err)
		}
		line, _, _ := strings.Cut(strings.TrimPrefix(string(b), key), "\n")
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of %q: %w", g, err)
		}
		sum += time.Duration(n) * unit
	}
	return sum, nil
}

// measure starts n pods, measures the cost and the residual memory, and removes the pods.
func (m *meter) measure(ctx context.Context, c variant, n int) (sample, error) {
	groups := append([]string{clientGroup}, c.cgroups...)
	before, err := m.usage(groups)
	if err != nil {
		return sample{}, err
	}
	args := c.start(n)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	busy, began := busyTime(), time.Now()
	err = cmd.Run()
	s := sample{wall: time.Since(began)}
	busy = busyTime() - busy
	if err != nil {
		err = fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), err, tail(out.Bytes()))
		return s, errors.Join(err, m.down(ctx, c))
	}
	after, err := m.usage(groups)
	s.cpu = after - before
	s.other = max(0, busy-s.cpu).Seconds() / s.wall.Seconds()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.rss = u.Maxrss << 10
	}
	if err == nil {
		s.residual, err = m.settle(groups, n)
	}
	return s, errors.Join(err, m.down(ctx, c))
}

// settle waits until n containers run their own program: just after the start, their process
// is still the OCI runtime. It returns the residual memory.
func (m *meter) settle(groups []string, n int) (int64, error) {
	for i := 0; ; i++ {
		running, bytes, err := m.residual(groups)
		if err != nil || running == n {
			return bytes, err
		}
		if i == 100 {
			return 0, fmt.Errorf("%d containers run, want %d", running, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// busyTime is the CPU time of all processes since boot.
func busyTime() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var ticks int64
	for i, f := range strings.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal ...
		if i == 0 || i == 4 || i == 5 || i > 7 {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

func (m *meter) down(ctx context.Context, c variant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	errs := make([]error, 0, len(c.down))
	for _, args := range c.down {
		errs = append(errs, command(ctx, args...))
	}
	return errors.Join(errs...)
}
