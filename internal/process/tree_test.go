package process_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/process"
)

// TestMain lets the program of the tests be a guard, which writes to a file.
func TestMain(m *testing.M) {
	if process.RunGuard(os.Args, os.Stdin, func(args []string) { _ = os.WriteFile(args[0], []byte(args[1]), 0o600) }) {
		return
	}
	os.Exit(m.Run())
}

// startTree starts a shell with a child and a grandchild, and returns their process IDs.
func startTree(t *testing.T) (root *exec.Cmd, all []int) {
	t.Helper()
	root = exec.CommandContext(t.Context(), "sh", "-c", `sh -c 'sleep 1000 & echo $$ $!; wait' & wait`)
	out, err := root.StdoutPipe()
	if err == nil {
		err = root.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	all = []int{root.Process.Pid}
	for field := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return root, all
}

// wantEnded fails the test unless the processes end.
func wantEnded(t *testing.T, all []int) {
	t.Helper()
	for _, pid := range all {
		for begin := time.Now(); process.Alive(pid); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("process %d still runs", pid)
			}
		}
	}
}

func TestKillTree(t *testing.T) {
	t.Parallel()
	root, all := startTree(t)
	if parent, ok := process.Parent(all[1]); parent != all[0] || !ok || process.Name(parent) != "sh" {
		t.Errorf("the parent of %d is %d, %q", all[1], parent, process.Name(parent))
	}
	if err := process.KillTree(all[0]); err != nil {
		t.Error(err)
	}
	_ = root.Wait()
	wantEnded(t, all)
	if err := process.KillTree(all[0]); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestGuard: a guard acts when its pipe is closed, which is what the end of its parent does, and not once it is
// released.
func TestGuard(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	release, err := process.StartGuard(file, "acted")
	if err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := os.Stat(file); err == nil {
		t.Fatal("a guard that was released has acted")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	guard := exec.CommandContext(t.Context(), "/proc/self/exe")
	guard.Args, guard.Stdin = []string{"runonce-guard", file, "acted"}, r
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = guard.Wait()
	if got, err := os.ReadFile(file); err != nil || string(got) != "acted" {
		t.Errorf("%q, %v", got, err)
	}
}
