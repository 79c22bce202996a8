package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/hack/bench/cputime"
	"github.com/runonce/runonce/hack/bench/memory"
)

// The benchmark's cgroups: for itself, for the daemon, and for the program that is measured.
const (
	ownGroup    = "runonce-bench"
	daemonGroup = ownGroup + "/daemon"
	clientGroup = ownGroup + "/client"
	selfGroup   = ownGroup + "/self"
)

// cost is what a command takes.
type cost struct {
	wall time.Duration // process start to exit
	cpu  time.Duration // of the client, the daemon, shims, OCI runtimes and containers
	// client is the CPU time of the command's own process.
	client time.Duration
	// busy is the CPU time of the whole machine.
	busy time.Duration
	// other is how many cores all other processes used meanwhile.
	other float64
	peak  int64 // memory of the client process, bytes
	files int64 // its open files, at most
}

// sample is one measured run.
type sample struct {
	cost
	round    int
	residual int64         // memory of the remaining processes that are not containers, bytes
	down     time.Duration // from the start to the exit of the process that removes the pods
	split    []cputime.Usage
}

// meter measures CPU time by cgroup, so that other work on the machine does not count.
type meter struct {
	root    string // where cgroups with CPU accounting are
	v2      bool
	ignored map[int]bool
	reports cputime.Sockets
	left    []string // cgroups to remove at the end
}

func newMeter() (*meter, error) {
	m := &meter{root: "/sys/fs/cgroup/cpuacct", ignored: map[int]bool{}}
	if _, err := os.Stat(filepath.Join(m.root, "cpuacct.usage")); err != nil {
		m.root, m.v2 = "/sys/fs/cgroup", true
		if _, err := os.Stat(filepath.Join(m.root, "cgroup.controllers")); err != nil {
			return nil, errors.New("accounting CPU time: neither cpuacct nor cgroup v2 is mounted")
		}
	}
	for _, g := range []string{daemonGroup, clientGroup, selfGroup} {
		if err := os.MkdirAll(filepath.Join(m.root, g), 0o755); err != nil {
			return nil, fmt.Errorf("making cgroup %q: %w", g, err)
		}
	}
	return m, errors.Join(m.killAll(ownGroup), m.enter(selfGroup))
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
	return errors.Join(m.enter(group), f(), m.enter(selfGroup))
}

// close removes the benchmark's cgroups, and those of the variants: a container's own cgroup is
// removed with it, but not its parent.
func (m *meter) close() error {
	errs := []error{m.enter(""), m.remove(daemonGroup), m.remove(clientGroup), m.remove(selfGroup), m.remove(ownGroup)}
	for _, name := range m.left {
		dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
		errs = append(errs, err)
		for _, dir := range append(dirs, "/sys/fs/cgroup/"+name) {
			errs = append(errs, removeGroups(dir))
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

// removeGroups removes a cgroup and those below it. If it does not exist, it does nothing.
func removeGroups(dir string) error {
	if strings.HasPrefix(dir, hybrid+"/") {
		return nil // not a cgroup, and it ends with our mounts
	}
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	for _, path := range slices.Backward(all) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a cgroup: %w", err)
		}
	}
	return err
}

// adopt makes the variants' cgroups ours: what an earlier benchmark has left there is killed, and
// they are removed at the end.
func (m *meter) adopt(all []variant) error {
	for _, v := range all {
		if err := m.killAll(v.cgroups...); err != nil {
			return err
		}
		m.left = append(m.left, slices.DeleteFunc(slices.Clone(v.cgroups), func(g string) bool { return g == daemonGroup })...)
	}
	return nil
}

// killAll kills what a failed variant, or an earlier benchmark that was killed, has left.
func (m *meter) killAll(groups ...string) error {
	for _, g := range groups {
		pids, err := m.processes(g)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if pid != os.Getpid() && !m.ignored[pid] {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited meanwhile
			}
		}
	}
	return nil
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

// measure starts the job's pods, measures the cost and the residual memory, and removes the pods.
func (m *meter) measure(ctx context.Context, v variant, j job, split bool) (s sample, err error) {
	defer func() {
		began := time.Now()
		err = errors.Join(err, v.remove(ctx))
		s.down = time.Since(began)
	}()
	var recorder *cputime.Recorder
	if split {
		if recorder, err = m.reports.Start(v.daemons...); err != nil {
			return s, err
		}
	}
	var pid int
	s.cost, pid, err = m.run(ctx, v, v.start(j))
	if pid != 0 && recorder != nil {
		usage, e := recorder.Stop(pid)
		s.split, err = usage, errors.Join(err, e)
	}
	if err == nil {
		s.residual, err = m.settle(v.groups(), v.containers(j))
	}
	return s, err
}

// containers is how many run once the job's pods have started.
func (v variant) containers(j job) int {
	if v.sandboxes {
		return 2 * j.n
	}
	return j.n
}

// groups are the cgroups of all processes that work for the variant.
func (v variant) groups() []string { return append([]string{clientGroup}, v.cgroups...) }

// run runs a command of a variant, and returns what it takes and the ID of its process, 0 if it has not started.
func (m *meter) run(ctx context.Context, v variant, args []string) (c cost, pid int, err error) {
	before, err := m.usage(v.groups())
	if err != nil {
		return c, 0, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, append(os.Environ(), v.env...)
	cmd.WaitDelay = time.Second // for processes that have inherited the output
	busy, began := busyTime(), time.Now()
	if err = m.inGroup(clientGroup, cmd.Start); err == nil {
		pid = cmd.Process.Pid
		most := memory.Watch(pid)
		err = cmd.Wait()
		c.peak, c.files = most()
	}
	c.wall = time.Since(began)
	c.busy = busyTime() - busy
	if err != nil {
		return c, pid, fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), err, tail(out.Bytes()))
	}
	after, err := m.usage(v.groups())
	c.cpu, c.client = after-before, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	c.other = max(0, c.busy-c.cpu).Seconds() / c.wall.Seconds()
	return c, pid, err
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
