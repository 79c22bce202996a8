package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// MakeMapped is like Make in a new user namespace, which owns the others and is pinned too.
// Its users and groups from 0 on are those of the host from first on, length of them.
func MakeMapped(dir string, kinds []Kind, hostname string, first, length int) error {
	var pins []Pin
	err := onOwnThread(func() (err error) {
		ids := []syscall.SysProcIDMap{{HostID: first, Size: length}}
		// It is traced, and nobody continues it: it stops before it executes anything.
		holder, err := os.StartProcess("/proc/self/exe", []string{"runonce[namespaces]"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, Unshareflags: uintptr(flags(kinds)),
			UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
			Ptrace: true, Pdeathsig: syscall.SIGKILL,
		}})
		if err != nil {
			return fmt.Errorf("creating a user namespace: %w", err)
		}
		defer func() {
			err = errors.Join(err, holder.Kill())
			_, _ = holder.Wait() // says that it was killed
		}()
		for _, k := range append([]Kind{User}, kinds...) {
			if err := pin(holder.Pid, k, dir); err != nil {
				return err
			}
			pins = append(pins, Pin{Kind: k, Path: filepath.Join(dir, string(k))})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return Inside(pins, func() error {
		for _, k := range kinds {
			if err := initialize(k, hostname); err != nil {
				return err
			}
		}
		return nil
	})
}
