package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestStopIsKilled: a job that has got its stop signal and ends with 0 halfway is not done, whoever has
// stopped it and was killed or interrupted meanwhile. The next run does it again.
func TestStopIsKilled(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "go")
	job := withHost(pod("job", "Never", "do", "trap", "await /host/go", "echo all done"), filepath.Dir(mark))
	job = strings.Replace(job, "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 300", 1)
	critical := strings.Replace(pod("critical", "Always", "sleep"), "spec:\n", "spec:\n  priorityClassName: system-node-critical\n", 1)
	full := []string{"--capacity", "cpu=8,memory=16Gi,pods=1"}
	for name, stop := range map[string]struct {
		manifests []string // of a run that stops the pod; none for down
		flags     []string
		signal    syscall.Signal
		code      int // of what it ends; -1 by the signal
	}{
		"down":             {nil, nil, syscall.SIGKILL, -1},
		"interrupted down": {nil, nil, syscall.SIGINT, 130},
		"replacement":      {[]string{pod("job", "Never", "exit", "0")}, nil, syscall.SIGKILL, -1},
		"prune":            {[]string{pod("other", "Always", "sleep")}, []string{"--prune"}, syscall.SIGKILL, -1},
		"preemption":       {[]string{critical}, full, syscall.SIGKILL, -1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "")
			_ = os.Remove(mark)
			dir := directory(t, job)
			file := filepath.Join(dir, "000.yaml")
			b.up(t, dir, 0, full...)
			b.awaitLog(t, "job", "main", "ready")
			cmd := b.command(t, "down", dir)
			if len(stop.manifests) > 0 {
				if err := os.WriteFile(file, []byte(stop.manifests[0]), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd = b.command(t, "run", b.upArgs(t, dir, stop.flags...)...)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			b.awaitLog(t, "job", "main", "got signal")
			if err := cmd.Process.Signal(stop.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != stop.code {
				t.Errorf("exit code %d, want %d", code, stop.code)
			}
			if err := errors.Join(os.WriteFile(mark, nil, 0o600), os.WriteFile(file, []byte(job), 0o600)); err != nil {
				t.Fatal(err)
			}
			b.awaitLog(t, "job", "main", "all done")
			end := b.goOn(t)
			got := b.up(t, dir, 0, "--until", "completed")
			end()
			if diff := cmp.Diff([]string{"job=Succeeded"}, got.report.outcomes()); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if text := b.run(t, "logs", "job").stdout; text != "ready\ngot signal 10\nall done\n" {
				t.Errorf("the job has written %q", text)
			}
		})
	}
}

// goOn sends SIGUSR1 to the containers until end is called. Those that wait for a signal go on.
func (b *box) goOn(t *testing.T) (end func()) {
	t.Helper()
	var sender sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	sender.Go(func() {
		for ctx.Err() == nil {
			all, _ := b.installation().Containers()
			for _, p := range all {
				number, _, _ := strings.Cut(p, " ")
				if pid, err := strconv.Atoi(number); err == nil {
					_ = unix.Kill(pid, unix.SIGUSR1)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		sender.Wait()
	}
}
