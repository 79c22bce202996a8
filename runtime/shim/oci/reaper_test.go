package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// reaper is the one of this program, which must not use os/exec beside it.
var reaper = sync.OnceValues(NewReaper)

func theReaper(t *testing.T) *Reaper {
	t.Helper()
	r, err := reaper()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sh starts a shell script, and returns its process and its exit.
func sh(t *testing.T, script string) (pid int, exit <-chan Exit) {
	t.Helper()
	ended := make(chan Exit, 1)
	pid, err := theReaper(t).Start([]string{"/bin/sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}, func(e Exit) { ended <- e })
	if err != nil {
		t.Fatal(err)
	}
	return pid, ended
}

func TestReaperStatus(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137, "kill -TERM $$": 143} {
		_, exit := sh(t, script)
		if e := <-exit; e.Status != want || time.Since(e.At) > time.Hour {
			t.Errorf("%s: %+v", script, e)
		}
	}
	if _, err := theReaper(t).Start([]string{"/none"}, &syscall.ProcAttr{}, nil); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}

// orphan starts a process whose parent ends. It ends with 5 when end is called.
func orphan(t *testing.T) (pid int, end func()) {
	t.Helper()
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "pid"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, exit := sh(t, fmt.Sprintf("(read x <%s; exit 5) & echo $! >%s", fifo, file))
	<-exit
	text, err := os.ReadFile(file)
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pid, func() {
		if err := os.WriteFile(fifo, nil, 0); err != nil {
			t.Error(err)
		}
	}
}

// TestReaperWatch: the end of a process that a program has left is seen, also when it came
// first, and orphans that nobody watches are reaped.
func TestReaperWatch(t *testing.T) {
	t.Parallel()
	r := theReaper(t)
	release := r.Hold()
	for _, early := range []bool{true, false} {
		pid, end := orphan(t)
		if early {
			end()
			gone(t, pid)
		}
		ended := make(chan Exit, 1)
		r.Watch(pid, func(e Exit) { ended <- e })
		if !early {
			end()
		}
		if e := <-ended; e.Status != 5 {
			t.Errorf("early %v: %+v", early, e)
		}
	}
	release()
	pid, end := orphan(t)
	end()
	gone(t, pid)
}

// gone waits until there is no such process, not even a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not reaped")
		}
	}
}

// TestReaperSignal: a signal reaches a process that runs, and never another one.
func TestReaperSignal(t *testing.T) {
	t.Parallel()
	r := theReaper(t)
	pid, exit := sh(t, "exec sleep 1000")
	if err := r.Signal(pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if e := <-exit; e.Status != 130 {
		t.Errorf("%+v", e)
	}
	for _, pid := range []int{pid, -pid, os.Getpid(), os.Getppid()} {
		if err := r.Signal(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

// TestUserNamespace: the namespace has the mappings, and its process is gone.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	roottest.Require(t)
	f, err := theReaper(t).userNamespace("0:100000:10", "0:100000:10")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !strings.HasPrefix(link, "user:[") {
		t.Errorf("%q, %v", link, err)
	}
	if own, err := os.Readlink("/proc/self/ns/user"); err != nil || own == link {
		t.Errorf("%q, %v", own, err)
	}
}
