// Package netns makes the namespaces of a pod, net, ipc and uts, and pins them to files, so
// that no process has to hold them.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// Kind is a kind of namespace that can be pinned to a file.
type Kind int

// The kinds of namespaces that pods have of their own.
const (
	Net Kind = iota
	IPC
	UTS
	User
)

// String returns the kind's name in /proc/PID/ns, also that of its pin.
func (k Kind) String() string {
	switch k {
	case Net:
		return "net"
	case IPC:
		return "ipc"
	case UTS:
		return "uts"
	case User:
		return "user"
	}
	return ""
}

// flag returns the kind's clone(2) flag.
func (k Kind) flag() int {
	switch k {
	case Net:
		return unix.CLONE_NEWNET
	case IPC:
		return unix.CLONE_NEWIPC
	case UTS:
		return unix.CLONE_NEWUTS
	case User:
		return unix.CLONE_NEWUSER
	}
	return 0
}

// Pin is a namespace that a file holds. An empty path stands for the host's.
type Pin struct {
	Kind Kind
	Path string
}

// Inside runs f on a thread in the namespaces, but in no user namespace: a process with
// several threads cannot enter one, and root of the host may do all in it. Sockets that f makes belong to them and may
// be used outside of f; goroutines that f starts are not in them.
func Inside(namespaces []Pin, f func() error) error {
	return onOwnThread(func() error {
		for _, ns := range namespaces {
			if ns.Path == "" || ns.Kind == User {
				continue
			}
			if err := enter(ns); err != nil {
				return err
			}
		}
		return f()
	})
}

func enter(ns Pin) error {
	fd, err := unix.Open(ns.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening namespace %s: %w", ns.Path, err)
	}
	err = unix.Setns(fd, ns.Kind.flag())
	_ = unix.Close(fd)
	if err != nil {
		return fmt.Errorf("entering namespace %s: %w", ns.Path, err)
	}
	return nil
}

// onOwnThread runs f on a thread that ends with it, so that f may change the thread's
// namespaces.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return // without unlocking: the thread ends
		}
		// The main thread never ends: it would hold f's namespaces for the life of the
		// process, and /proc/self would show them. While it is locked here, the next
		// goroutine gets another one.
		defer goruntime.UnlockOSThread()
		done <- onOwnThread(f)
	}()
	return <-done
}

// Make makes new namespaces and pins them to files named after their kind in dir, which
// must exist. hostname is set when there is a uts namespace. On an error the caller
// removes what is there with Remove.
func Make(dir string, kinds []Kind, hostname string) error {
	return onOwnThread(func() error {
		if err := unix.Unshare(flags(kinds)); err != nil {
			return fmt.Errorf("making namespaces: %w", err)
		}
		for _, k := range kinds {
			if err := initNamespace(k, hostname); err != nil {
				return err
			}
			if err := bindNamespace(unix.Gettid(), k, dir); err != nil {
				return err
			}
		}
		return nil
	})
}

func flags(kinds []Kind) int {
	all := 0
	for _, k := range kinds {
		all |= k.flag()
	}
	return all
}

func initNamespace(k Kind, hostname string) error {
	switch k {
	case Net:
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bringing up the loopback interface: %w", err)
		}
	case UTS:
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("setting host name %q: %w", hostname, err)
		}
	case IPC, User:
	}
	return nil
}

// bindNamespace pins the namespace that the thread, or process, is in.
func bindNamespace(id int, k Kind, dir string) error {
	path := filepath.Join(dir, k.String())
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return fmt.Errorf("making the pin of a namespace: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("making the pin of a namespace: %w", err)
	}
	from := fmt.Sprintf("/proc/%d/ns/%s", id, k.String())
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pinning a namespace to %s: %w", path, err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Alive reports whether the file holds a namespace of its kind. After a reboot
// it is missing, or a plain empty file.
func Alive(ns Pin) bool {
	fd, err := unix.Open(ns.Path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	return err == nil && kind == ns.Kind.flag()
}

// Remove removes the pins in dir, and dir. What is absent is no error.
func Remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, k := range []Kind{Net, IPC, UTS, User} {
		path := filepath.Join(dir, k.String())
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// EINVAL: a file that nothing is mounted on.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("releasing namespace %s: %w", path, err))
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing the pin of a namespace: %w", err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the directory of namespaces: %w", err)
	}
	return nil
}
