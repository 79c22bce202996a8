package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// interactive returns the manifest of a pod with an input, and with a terminal or without.
func interactive(name string, tty bool, args ...string) string {
	return strings.Replace(pod(name, "Never", args...), "image:", fmt.Sprintf("stdin: true, stdinOnce: true, tty: %t, image:", tty), 1)
}

// TestAttach: input of one who attaches goes to the container, also from a terminal, whose size the container's has,
// and the exit code of the container is passed on. Whoever is killed leaves the container as it is.
func TestAttach(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.up(t, directory(t,
			interactive("trap", true, "trap"), interactive("text", false, "do", "listen", "exit 7"), interactive("stays", true, "do", "listen", "facts"),
			interactive("sized", true, "do", "await /sized", "facts"),
		), 0)
		out, code := b.inTerminal(t, []string{"attach", "-it", "trap"}, "", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("\x03") })
		if code != 0 || !strings.Contains(out, "got signal 2") {
			t.Errorf("Ctrl-C: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, []string{"attach", "-it", "sized"}, "", func(ours *os.File, cmd *exec.Cmd) {
			_ = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 140})
			_ = cmd.Process.Signal(syscall.SIGWINCH) // it is not in the session of the terminal
			time.Sleep(time.Second)
			b.run(t, "exec", "sized", "--", "/bin/box", "write", "/sized", "yes")
		})
		if code != 0 || !strings.Contains(out, `"ttySize":[50,140]`) {
			t.Errorf("a new size: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, []string{"attach", "-it", "stays"}, "", func(_ *os.File, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) })
		if code != 128+int(syscall.SIGTERM) {
			t.Errorf("SIGTERM: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, []string{"attach", "-it", "stays"}, "", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("again\r\x04") })
		if code != 0 || !strings.Contains(out, "again") {
			t.Errorf("after SIGTERM: exit code %d, output %q", code, out)
		}
		cmd := b.command(t, "attach", "-i", "text")
		cmd.Stdin = strings.NewReader(strings.Repeat("a line\n", 100_000))
		text, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != 7 || strings.Count(string(text), "a line\n") != 100_000 {
			t.Errorf("text: exit code %d, %d bytes, %v", code, len(text), err)
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

// TestRunInteractive: a run whose container works with its terminal. That has the right size from the beginning, keys go
// to the container, and what it prints first is not missed, however much that is.
func TestRunInteractive(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		dir := func(dir string, more ...string) []string {
			return append([]string{"run", "-i"}, b.upArgs(t, dir, more...)[2:]...)
		}
		run := func(manifest string, more ...string) []string {
			return dir(directory(t, manifest), append(more, "--rm")...)
		}
		for _, tt := range []struct {
			name, manifest, waitFor, keys string
			signal                        syscall.Signal
			code                          int
			want                          string
		}{
			{name: "size", manifest: pod("size", "Never", "do", "facts", "listen", "exit 7"), waitFor: "ttySize", keys: "again\r\x04", code: 7, want: `"ttySize":[40,120]`},
			{name: "input", manifest: pod("input", "Never", "do", "listen", "exit 3"), keys: "again\r\x04", code: 3, want: "again"},
			{name: "Ctrl-C", manifest: pod("trap", "Never", "trap"), waitFor: "ready", keys: "\x03", want: "got signal 2"},
			{name: "SIGTERM", manifest: pod("stays", "Never", "listen"), waitFor: "listening", signal: syscall.SIGTERM, code: 128 + int(syscall.SIGTERM), want: "listening"},
		} {
			out, code := b.inTerminal(t, run(tt.manifest, "-t"), tt.waitFor, func(ours *os.File, cmd *exec.Cmd) {
				if tt.signal != 0 {
					_ = cmd.Process.Signal(tt.signal)
				}
				_, _ = ours.WriteString(tt.keys)
			})
			if code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("%s: exit code %d, output %q, want %d and %q", tt.name, code, out, tt.code, tt.want)
			}
		}
		stays := dir(directory(t, pod("stays", "Never", "do", "listen", "exit 5")), "-t")
		out, code := b.inTerminal(t, stays, "listening", func(_ *os.File, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) })
		if code != 128+int(syscall.SIGTERM) {
			t.Errorf("the first run: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, stays, "", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("again\r\x04") })
		if code != 5 || !strings.Contains(out, "again") || strings.Contains(out, "listening") {
			t.Errorf("the second run: exit code %d, output %q", code, out)
		}
		args := run(pod("much", "Never", "do", "flood -n 20000", "listen", "error done", "exit 7"))
		cmd := b.command(t, args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(strings.Repeat("a line\n", 100_000))
		var errs strings.Builder
		cmd.Stderr = &errs
		text, err := cmd.Output()
		first, second, _ := strings.Cut(string(text), "listening\n")
		if code := cmd.ProcessState.ExitCode(); code != 7 || strings.Count(first, "\n") != 20_000 || second != strings.Repeat("a line\n", 100_000)+"end\n" {
			t.Errorf("text: exit code %d, %d bytes, %v", code, len(text), err)
		}
		if errs.String() != "done\n" {
			t.Errorf("standard error: %q", errs.String())
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

// TestAttachOtherShim: with a third-party shim, the logger passes input and output on.
func TestAttachOtherShim(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.up(t, directory(t, otherClass(interactive("trap", true, "trap"), interactive("text", false, "do", "listen", "exit 7"))), 0,
			"--runtime-handler", otherShim(t, daemon.Current))
		out, code := b.inTerminal(t, []string{"attach", "-it", "trap"}, "", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("\x03") })
		if code != 0 || !strings.Contains(out, "got signal 2") {
			t.Errorf("Ctrl-C: exit code %d, output %q", code, out)
		}
		cmd := b.command(t, "attach", "-i", "text")
		cmd.Stdin = strings.NewReader("hello\n")
		text, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != 7 || string(text) != "hello\nend\n" {
			t.Errorf("text: exit code %d, %q, %v", code, text, err)
		}
		args := b.upArgs(t, directory(t, otherClass(pod("begin", "Never", "do", "listen", "exit 7"))), "-i", "--runtime-handler", otherShim(t, daemon.Current))
		cmd = b.command(t, "run", args[2:]...)
		cmd.Stdin = strings.NewReader("hello\n")
		text, err = cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != 7 || string(text) != "listening\nhello\nend\n" {
			t.Errorf("run -i: exit code %d, %q, %v", code, text, err)
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current)
}
