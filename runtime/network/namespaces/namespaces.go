// Package namespaces makes the namespaces of a pod, net, ipc, uts and user, and pins them to
// files, so that no process has to keep them alive.
package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind is a kind of namespace: its name in /proc/PID/ns, and that of the file it is pinned to.
type Kind string

// The kinds of namespaces that pods have of their own.
const (
	Net  Kind = "net"
	IPC  Kind = "ipc"
	UTS  Kind = "uts"
	User Kind = "user"
)

// cloneFlags are the kinds' flags of clone(2).
var cloneFlags = map[Kind]int{Net: unix.CLONE_NEWNET, IPC: unix.CLONE_NEWIPC, UTS: unix.CLONE_NEWUTS, User: unix.CLONE_NEWUSER}

// Pin is a namespace that a file keeps alive. An empty path stands for the host's.
type Pin struct {
	Kind Kind
	Path string
}

// Inside runs f on a thread in the namespaces. It does not enter user namespaces: a process
// with several threads cannot, and the host's root has all rights in them. Sockets that f
// creates belong to the namespaces and can be used outside of f; goroutines that f starts are
// not in them.
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
	err = unix.Setns(fd, cloneFlags[ns.Kind])
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
		// The main thread never ends: it would stay in f's namespaces for the life of the
		// process, and /proc/self would show them. While it is locked here, the next
		// goroutine gets another one.
		defer goruntime.UnlockOSThread()
		done <- onOwnThread(f)
	}()
	return <-done
}

// Make makes new namespaces and pins them to files named after their kind in dir, which
// must exist. A new uts namespace gets the host name. After an error the caller removes
// what was made with Remove.
func Make(dir string, kinds []Kind, hostname string) error {
	return onOwnThread(func() error {
		if err := unix.Unshare(flags(kinds)); err != nil {
			return fmt.Errorf("creating namespaces: %w", err)
		}
		for _, k := range kinds {
			if err := initialize(k, hostname); err != nil {
				return err
			}
			if err := pin(unix.Gettid(), k, dir); err != nil {
				return err
			}
		}
		return nil
	})
}

func flags(kinds []Kind) int {
	all := 0
	for _, k := range kinds {
		all |= cloneFlags[k]
	}
	return all
}

// initialize sets up the thread's new namespace.
func initialize(k Kind, hostname string) error {
	switch k {
	case Net:
		if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}); err != nil {
			return fmt.Errorf("bringing up the loopback interface: %w", err)
		}
		unprivileged()
	case UTS:
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("setting host name %q: %w", hostname, err)
		}
	case IPC, User:
	}
	return nil
}

// unprivileged lets any user listen on any port and send echo requests, as containerd's CRI plugin
// does for pods by default. Without either, pods still run: where /proc/sys is read-only, and in a
// user namespace, to which not all groups are mapped.
func unprivileged() {
	for name, value := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"} {
		_ = os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0)
	}
}

// pin pins a namespace of the thread or process to a new file.
func pin(id int, k Kind, dir string) error {
	path := filepath.Join(dir, string(k))
	if err := unix.Mknod(path, unix.S_IFREG|0o400, 0); err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", id, k), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pinning a namespace to %s: %w", path, err)
	}
	return nil
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
	return err == nil && kind == cloneFlags[ns.Kind]
}

// Remove removes the pins in dir, wherever another version has put them there, and dir. It may be
// repeated.
func Remove(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		// EINVAL: a file that nothing is mounted on.
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting namespace %s: %w", path, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the directory of namespaces: %w", err)
	}
	return nil
}
