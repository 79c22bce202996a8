package files

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// thread is one of the system with other credentials than the process has.
type thread struct{ calls chan func() }

// userThread returns a thread that makes files as the first user and group of a user namespace, because those of this
// process do not exist in its file systems, with all the rights of this process.
func userThread(first int) (*thread, error) {
	t := &thread{calls: make(chan func())}
	ready := make(chan error)
	process.Apart(func() {
		err := become(first)
		ready <- err
		if err != nil {
			return
		}
		for call := range t.calls {
			call()
		}
	})
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("becoming the first user of a user namespace: %w", err)
	}
	return t, nil
}

func (t *thread) do(f func() error) error {
	done := make(chan error)
	t.calls <- func() { done <- f() }
	return <-done
}

func (t *thread) close() { close(t.calls) }

// become sets the user and the group to which the files belong that this thread makes, and takes back the capabilities
// that this removes (capabilities(7)).
func become(id int) error {
	for _, call := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
		_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0) // returns the one before
		if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); int(now) != id {
			return unix.EPERM
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	return unix.Capset(&header, &data[0])
}
