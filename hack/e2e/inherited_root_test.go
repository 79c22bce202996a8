package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestInheritedFiles: pods do not keep files of the caller open, such as the lock that flock(1) holds
// while runonce runs.
func TestInheritedFiles(t *testing.T) {
	b := newBox(t, "")
	file, err := os.Create(filepath.Join(b.dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := b.command(t, "run", b.upArgs(t, directory(t, pod("web", "Always", "sleep")))...)
	cmd.ExtraFiles = append(make([]*os.File, 8), file) // the program uses low numbers itself
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = file.Close()
	again, err := os.Open(filepath.Join(b.dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock is still held: %v", err)
	}
}

// TestInheritedAttributes: the limits of the caller, its priority, processors and blocked signals are not
// those of shims and containers.
func TestInheritedAttributes(t *testing.T) {
	b := newBox(t, "")
	var plain []string
	for _, shell := range []string{"", `ulimit -S -s 1024; ulimit -S -f 1000000; ulimit -S -u 5000; ulimit -S -l 16; ulimit -S -c 8
		echo 3000000 >/proc/$$/timerslack_ns; exec env --block-signal=USR2 nice -n 5 taskset 1 "$0" "$@"`} {
		dir := directory(t, pod("web", "Always", "sleep"))
		cmd := b.command(t, "run", b.upArgs(t, dir)...)
		if shell != "" {
			cmd.Args = append([]string{"sh", "-c", shell}, cmd.Args...)
			cmd.Path = "/bin/sh"
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		processes := b.processes(t)
		if len(processes) != 2 {
			t.Fatalf("want a shim and a container: %q", processes)
		}
		if strings.Contains(processes[0], "/bin/box") { // the numbers of processes begin again at some time
			slices.Reverse(processes)
		}
		got := func() (all []string) {
			for _, p := range processes {
				pid, _, _ := strings.Cut(p, " ")
				all = append(all, attributes(t, pid))
			}
			return all
		}
		if shell == "" {
			b.awaitProcess(t, "/bin/box sleep")
			plain = got()
		} else if !eventually(func() bool { return slices.Equal(got(), plain) }) { // Go blocks signals for moments
			t.Errorf("(-plain +got):\n%s", cmp.Diff(plain, got()))
		}
		if r := b.run(t, "down", dir); r.code != 0 {
			t.Fatalf("down: exit code %d\n%s", r.code, r.stderr)
		}
	}
}

// attributes are what a process inherits.
func attributes(t *testing.T, pid string) string {
	t.Helper()
	var text [4][]byte
	for i, name := range []string{"limits", "status", "stat", "timerslack_ns"} {
		var err error
		if text[i], err = os.ReadFile(filepath.Join("/proc", pid, name)); err != nil {
			t.Fatal(err)
		}
	}
	all := string(text[0])
	for line := range strings.Lines(string(text[1])) {
		if strings.HasPrefix(line, "Cpus_allowed_list:") {
			all += line
		}
	}
	all += fmt.Sprintf("blocked %x\n", blocked(t, pid))
	// After the name, see proc(5): state is field 3, nice 19 and policy 41.
	_, rest, _ := strings.Cut(string(text[2]), ") ")
	fields := strings.Fields(rest)
	return all + fmt.Sprintf("nice %s, policy %s, timers late by %s ns", fields[16], fields[38], text[3])
}

// blocked returns the signals that all threads block. One of Go's threads, which may be the first, waits
// for signals and blocks most.
func blocked(t *testing.T, pid string) uint64 {
	t.Helper()
	threads, err := filepath.Glob(filepath.Join("/proc", pid, "task/*/status"))
	if err != nil || len(threads) == 0 {
		t.Fatalf("%q, %v", threads, err)
	}
	mask := ^uint64(0)
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		_, rest, found := strings.Cut(string(text), "SigBlk:\t")
		var own uint64
		if _, scanned := fmt.Sscanf(rest, "%x", &own); err != nil || !found || scanned != nil {
			t.Fatalf("%s: %q, %v, %v", path, text, err, scanned)
		}
		mask &= own
	}
	return mask
}
