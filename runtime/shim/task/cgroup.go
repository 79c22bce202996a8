package task

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// cgroup is a cgroup that limits and counts memory.
type cgroup struct {
	dir string
	v2  bool
}

// findCgroup finds the cgroup of a process.
func findCgroup(pid int) (cgroup, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return cgroup{}, err
	}
	path, v2 := cgroupPath(string(text), "memory")
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, path, "cgroup.procs")); err == nil && v2 == (root == "/sys/fs/cgroup") {
			return cgroup{filepath.Join(root, path), v2}, nil
		}
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		ours := v2 && m.FSType == "cgroup2" || !v2 && m.FSType == "cgroup" && strings.Contains(","+m.VFSOptions+",", ",memory,")
		return !ours, ours
	})
	if err != nil || len(mounts) == 0 {
		return cgroup{}, errors.Join(fmt.Errorf("no memory cgroups: %w", fs.ErrNotExist), err)
	}
	// In a container, only a part of the tree is mounted.
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(mounts[0].Root, "/"))
	if !ok {
		rest = path
	}
	return cgroup{filepath.Join(mounts[0].Mountpoint, rest), v2}, nil
}

// frozen reports whether the process is in a frozen cgroup of version 1, where SIGKILL ends nothing.
func frozen(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	path, v2 := cgroupPath(string(text), "freezer")
	if v2 {
		return false
	}
	state, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/freezer", path, "freezer.state"))
	return err == nil && strings.TrimSpace(string(state)) != "THAWED"
}

// cgroupPath returns the path of the controller's cgroup from /proc/PID/cgroup.
func cgroupPath(text, controller string) (path string, v2 bool) {
	for line := range strings.Lines(text) {
		// NUMBER:CONTROLLERS:PATH
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if strings.Contains(","+f[1]+",", ","+controller+",") {
			return f[2], false
		}
		if f[0] == "0" && f[1] == "" {
			path, v2 = f[2], true
		}
	}
	return path, v2
}

// pids returns the processes in the cgroup and below it.
func (c cgroup) pids() []int {
	var all []int
	if c.dir == "" {
		return nil
	}
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // gone meanwhile
		}
		if d.Name() != "cgroup.procs" {
			return nil
		}
		text, _ := os.ReadFile(path)
		for s := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(s); err == nil {
				all = append(all, pid)
			}
		}
		return nil
	})
	return all
}

// files returns the directories in which the kernel counts what the cgroup uses.
func (c cgroup) files() podusage.Cgroup {
	return podusage.Cgroup{V2: c.v2, CPU: c.in("cpuacct").dir, Memory: c.dir, IO: c.in("blkio").dir}
}

// in returns the same cgroup in the hierarchy of a controller, with version 2 the only one.
func (c cgroup) in(controller string) cgroup {
	if !c.v2 {
		c.dir = strings.Replace(c.dir, "/memory/", "/"+controller+"/", 1)
	}
	return c
}

// total returns what the processes in the cgroup have used, nothing without one.
func (c cgroup) total() (t podusage.Total) {
	if c.dir != "" {
		t = c.files().Total()
	}
	return t
}

// metrics returns what the processes in the cgroup use.
func (c cgroup) metrics() *ttrpc.Metrics {
	used, _ := c.files().Sample()
	m := &ttrpc.Metrics{V2: c.v2, PIDs: c.in("pids").number("pids.current"), CPU: used.CPU.Nanoseconds(), Memory: int64(used.Memory)}
	if c.v2 {
		m.CPU = used.CPU.Microseconds()
	}
	return m
}

// number returns the number in a file, 0 without it.
func (c cgroup) number(name string) int64 {
	text, _ := os.ReadFile(filepath.Join(c.dir, name))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// oomWatch tells when a container runs out of memory.
type oomWatch struct {
	cgroup
	tell func()
	file *os.File // readable when something has happened

	mu   sync.Mutex
	seen int64
}

// watchOOM watches the cgroup of a process. Without one, nothing is ever told.
func watchOOM(pid int, tell func()) *oomWatch {
	w := &oomWatch{tell: tell}
	var err error
	if w.cgroup, err = findCgroup(pid); err != nil {
		return w
	}
	if w.file, err = w.open(); err != nil {
		return w
	}
	go func() {
		b := make([]byte, 256)
		for {
			if _, err := w.file.Read(b); err != nil {
				return
			}
			w.look()
		}
	}()
	return w
}

// open opens a file from which one can read whenever something happens in the cgroup.
func (c cgroup) open() (*os.File, error) {
	if c.v2 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), "inotify")
		_, err = unix.InotifyAddWatch(fd, filepath.Join(c.dir, "memory.events"), unix.IN_MODIFY)
		return f, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "eventfd")
	control, err := os.Open(filepath.Join(c.dir, "memory.oom_control"))
	if err != nil {
		return f, err
	}
	defer func() { _ = control.Close() }()
	line := fmt.Sprintf("%d %d", fd, control.Fd())
	return f, os.WriteFile(filepath.Join(c.dir, "cgroup.event_control"), []byte(line), 0)
}

// look tells of what has happened, and reports whether anything has ever happened.
func (w *oomWatch) look() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir == "" {
		return false
	}
	if n, err := w.files().OOMKills(); err == nil && n > w.seen {
		w.seen = n
		w.tell()
	}
	return w.seen > 0
}

// stop ends the watch.
func (w *oomWatch) stop() {
	if w.file != nil {
		_ = w.file.Close()
	}
}
