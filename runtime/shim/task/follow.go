package task

import (
	"fmt"
	"os"
	"syscall"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/shim/oci"
)

// follow has what a run would have removed at its end be removed if it is killed. The pod of this shim belongs to it.
func (s *Service) follow(runFile string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if runFile == "" || s.followed[runFile] {
		return
	}
	s.followed[runFile] = true
	go func() {
		_ = flock.FollowRun(runFile, s.clean) // else the next run does it
	}()
}

// clean runs a command that outlives this shim.
func (s *Service) clean(command []string, inherits *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	ended := make(chan oci.Exit, 1)
	_, err = s.o.Reaper.Start(command, &syscall.ProcAttr{
		Env:   []string{"PATH=" + os.Getenv("PATH")},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), inherits.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}, func(e oci.Exit) { ended <- e })
	if err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}
	if e := <-ended; e.Status != 0 {
		return fmt.Errorf("%s: exit status %d", command[0], e.Status)
	}
	return nil
}
