// Package oci runs the commands of an OCI runtime, such as runc or crun, and waits for all
// processes that they leave to the shim.
package oci

import (
	"errors"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// Exit is how a process ended.
type Exit struct {
	Status int // the exit code, or 128 and the signal's number
	At     time.Time
}

// Reaper reaps all children of this process, to which the kernel also gives their orphans.
type Reaper struct {
	wake chan struct{} // there may be children again

	mu    sync.Mutex
	ended map[int]func(Exit) // what to call at the end of a process
	early map[int]Exit       // of processes that nobody has asked for yet, nil when nobody will
	holds int
}

// NewReaper returns a reaper that works until the program ends.
func NewReaper() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	r := &Reaper{wake: make(chan struct{}, 1), ended: map[int]func(Exit){}}
	go r.run()
	return r, nil
}

func (r *Reaper) run() {
	for {
		// It waits without the lock, and does not reap: a process that is known must not lose its
		// number before it is noted as ended.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			<-r.wake // processes without children get no orphans
		}
		if err == nil {
			r.reap()
		}
	}
}

func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if status.Stopped() {
			continue // of userNamespace
		}
		e := Exit{Status: status.ExitStatus(), At: time.Now()}
		if status.Signaled() {
			e.Status = 128 + int(status.Signal())
		}
		if f := r.ended[pid]; f != nil {
			delete(r.ended, pid)
			f(e)
		} else if r.holds > 0 {
			r.early[pid] = e
		}
	}
}

// Start starts a program, and calls ended at its end. ended must not block.
func (r *Reaper) Start(argv []string, attr *syscall.ProcAttr, ended func(Exit)) (pid int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	process.UsualTimers()
	if pid, err = syscall.ForkExec(argv[0], argv, attr); err != nil {
		return 0, err
	}
	r.ended[pid] = ended
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return pid, nil
}

// Hold keeps how processes end that are not watched yet, until release is called.
func (r *Reaper) Hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds++; r.early == nil {
		r.early = map[int]Exit{}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.holds--; r.holds == 0 {
			r.early = nil
		}
	}
}

// Watch calls ended at the end of a process that a started program has left. The caller has
// called Hold before it started that. ended must not block.
func (r *Reaper) Watch(pid int, ended func(Exit)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.early[pid]; ok {
		delete(r.early, pid)
		ended(e)
		return
	}
	r.ended[pid] = ended
}

// Signal sends a signal to a process that was started or is watched, to its process group when
// the number is negative. It is syscall.ESRCH when it has ended.
func (r *Reaper) Signal(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[max(pid, -pid)] == nil {
		return syscall.ESRCH
	}
	return syscall.Kill(pid, sig)
}
