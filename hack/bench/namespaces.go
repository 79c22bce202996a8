package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	goruntime "runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/bench/cputime"
)

// machineNet holds the descriptor of the machine's network namespace. It is set in the process
// that has entered its own.
const machineNet = "RUNONCE_BENCH_MACHINE_NET"

// hybrid is where a machine with cgroup v1 mounts the unified hierarchy.
const hybrid = "/sys/fs/cgroup/unified"

// enterNamespaces starts this program again in mount and network namespaces of its own, and
// returns in there. Whatever the benchmark mounts, and its bridges and rules, end with them,
// and rules that the machine has do not slow it down.
func enterNamespaces() error {
	if os.Getenv(machineNet) != "" {
		return initNamespaces()
	}
	goruntime.LockOSThread() // the thread that changes its namespaces has to be the one that starts the program
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	env := append(os.Environ(), machineNet+"="+strconv.Itoa(fd))
	return fmt.Errorf("starting again: %w", unix.Exec("/proc/self/exe", os.Args, env))
}

func initNamespaces() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}); err != nil {
		return fmt.Errorf("bringing up the loopback interface: %w", err)
	}
	return hideHybrid()
}

// hideHybrid hides the unified hierarchy of a machine that also has cgroup v1: crun refuses to
// use both. All variants do without it, to be equal. crun then makes directories in its place,
// which are better on a file system of our own.
func hideHybrid() error {
	if _, err := os.Stat(hybrid); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unix.Unmount(hybrid, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", hybrid, err)
	}
	return mountTmpfs(hybrid)
}

// openReports opens the kernel's reports on processes, which exist only in the machine's
// network namespace.
func openReports() (s cputime.Sockets, err error) {
	fd, err := strconv.Atoi(os.Getenv(machineNet))
	if err != nil {
		return s, fmt.Errorf("reading %s: %w", machineNet, err)
	}
	unix.CloseOnExec(fd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // and never unlock: the thread ends
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			s, err = cputime.Open()
		}
	}()
	<-done
	return s, err
}
