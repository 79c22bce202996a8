package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/testing/flocktest"
)

const lockVariable = "RUNONCE_TEST_LOCK"

// TestMain makes the process that lockedElsewhere starts.
func TestMain(m *testing.M) {
	path := os.Getenv(lockVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := Try(path)
	if f == nil || err != nil {
		fmt.Println("not locked:", err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends it
	_ = f.Close()
}

// lockedElsewhere locks the file in another process, until the test ends.
func lockedElsewhere(t *testing.T, path string) *os.Process {
	t.Helper()
	return flocktest.Hold(t, lockVariable+"="+path, os.Args[0])
}

// A wait for a process that is stopped ends, and says which process that is.
func TestStoppedHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	p := lockedElsewhere(t, path)
	h := HolderOf(path)
	if h.PID != p.Pid || !strings.Contains(h.Command, filepath.Base(os.Args[0])) || time.Since(h.Since) > time.Hour || h.Stopped {
		t.Fatalf("holder %+v, want %d", h, p.Pid)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !HolderOf(path).Stopped {
		time.Sleep(time.Millisecond)
	}
	synctest.Test(t, func(t *testing.T) {
		var told []Holder
		_, err := Acquire(t.Context(), path, func(h Holder) { told = append(told, h) })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("resume it with kill -CONT %d", p.Pid)) {
			t.Errorf("error %v", err)
		}
		if len(told) != 1 || told[0].PID != p.Pid {
			t.Errorf("told %+v", told)
		}
	})
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// A wait for a process that works goes on until the caller gives up.
func TestBusyHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lockedElsewhere(t, path)
	synctest.Test(t, func(t *testing.T) {
		told := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Acquire(ctx, path, func(Holder) { told++ })
		if !errors.Is(err, context.DeadlineExceeded) || told != 1 {
			t.Errorf("error %v, told %d times", err, told)
		}
	})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(f, time.Millisecond); err == nil || !strings.Contains(err.Error(), "gave up after 1ms; it is held by process") {
		t.Errorf("error %v", err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Wait(ctx, f); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := Try(path); other != nil || err != nil {
		t.Errorf("locked twice: %v, %v", other, err)
	}
	second, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- wait(second, time.Hour) }()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestHolderNames(t *testing.T) {
	t.Parallel()
	const locks = "1: POSIX  ADVISORY  WRITE 5 fe:01:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 fe:01:421 0 EOF\n" +
		"2: -> FLOCK  ADVISORY  WRITE 9 fe:01:42 0 EOF\n3: FLOCK  ADVISORY  WRITE 7 fe:01:42 0 EOF\n4: FLOCK  ADVISORY  WRITE -1 00:01:43 0 EOF\n"
	for file, want := range map[string]int{"fe:01:42": 7, ":42": 7, "fe:01:421": 6, ":43": 0, ":4": 0} {
		if got := lockedBy([]byte(locks), file); got != want {
			t.Errorf("%s: %d, want %d", file, got, want)
		}
	}
	for line, want := range map[string]string{
		"/usr/bin/runonce watch /etc/pods":             "runonce watch /etc/pods",
		"runonce run https://me:secret@example/p.yaml": "runonce run https://me:xxxxx@example/p.yaml",
		"box a\tb\x1b":                    "box a b ",
		"box " + strings.Repeat("a", 100): "box " + strings.Repeat("a", 76) + "…",
	} {
		if got := command(strings.Split(line, " ")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if h := HolderOf("/no/such/file"); h.String() != "another process" {
		t.Errorf("%s", h)
	}
}
