package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// sleeper runs a pod in which commands can run, and returns the ID of its container.
func (b *box) sleeper(t testing.TB) string {
	t.Helper()
	up := b.up(t, directory(t, pod("web", "Always", "sleep")), 0)
	b.awaitProcess(t, "/bin/box sleep") // which the OCI runtime becomes after the start
	_, id, _ := strings.Cut(up.report.Results[0].Status.ContainerStatuses[0].ContainerID, "://")
	return id
}

// TestExecKilled: what a killed "exec" has started in a container is killed as well.
func TestExecKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, b *box) {
		b.sleeper(t)
		b.killExec(t)
	})
}

// TestExecKilledElsewhere: the same holds with another OCI runtime, and with a shim that does not end commands itself.
func TestExecKilledElsewhere(t *testing.T) {
	test := func(t *testing.T, b *box, handler string) {
		t.Helper()
		b.up(t, directory(t, otherClass(pod("web", "Always", "sleep"))), 0, "--max-retries", "0", "--runtime-handler", handler)
		b.awaitProcess(t, "/bin/box sleep")
		b.killExec(t)
		if r := b.run(t, "down", "--all"); r.code != 0 { // while there is the handler
			t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
		}
	}
	everywhere(t, func(t *testing.T, b *box) {
		program, _ := crun(t)
		test(t, b, "other="+program)
	})
	shims := func(v daemon.Version) func(*testing.T, *box) {
		return func(t *testing.T, b *box) { test(t, b, otherShim(t, v)) }
	}
	embedded(t, shims(daemon.Current))
	daemons(t, shims(daemon.Current), daemon.Current)
	daemons(t, shims(daemon.Debian), daemon.Debian)
}

// TestExecKilledWithoutDaemon: what a killed "exec" has started ends once the daemon answers again.
func TestExecKilledWithoutDaemon(t *testing.T) {
	roottest.Require(t)
	d := daemon.Serve(t, daemon.Current)
	b := newBox(t, d.Socket)
	handler := otherShim(t, daemon.Current)
	b.up(t, directory(t, otherClass(pod("web", "Always", "sleep"))), 0, "--runtime-handler", handler)
	b.awaitProcess(t, "/bin/box sleep")
	before := b.containers(t)
	cmd := b.beginExec(t)
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	time.Sleep(time.Second) // so that the first attempt fails
	again, err := daemon.Start(t.Context(), daemon.Programs(t, daemon.Current), d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	*d = *again
	if !eventually(func() bool { return slices.Equal(b.containers(t), before) }) {
		t.Errorf("left %q, before %q", b.containers(t), before)
	}
	if r := b.run(t, "down", "--all"); r.code != 0 {
		t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
	}
}

// otherClass gives the pods a runtime class with the handler "other".
func otherClass(pods ...string) string {
	class := "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: other}\nhandler: other\n---\n"
	return class + strings.ReplaceAll(strings.Join(pods, "---\n"), "\nspec:", "\nspec:\n  runtimeClassName: other")
}

// beginExec begins a command in pod "web" that has a child process, and waits until both run.
func (b *box) beginExec(t *testing.T) *exec.Cmd {
	t.Helper()
	before := b.containers(t)
	cmd := b.command(t, "exec", "web", "--", "/bin/box", "do", "beside stay 1h", "stay 2h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return len(b.containers(t)) == len(before)+2 }) {
		t.Fatalf("the command does not run: %q", b.containers(t))
	}
	return cmd
}

// killExec kills commands in pod "web", and wants nothing of them to be left.
func (b *box) killExec(t *testing.T) {
	t.Helper()
	before := b.containers(t)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		cmd := b.beginExec(t)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); signal == syscall.SIGTERM && code != 128+int(signal) {
			t.Errorf("%s: exit code %d", signal, code)
		}
		if !eventually(func() bool { return slices.Equal(b.containers(t), before) }) {
			t.Fatalf("%s: left %q, before %q", signal, b.containers(t), before)
		}
	}
}

// TestExecKilledEarly: the same holds while the command is being started.
func TestExecKilledEarly(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.sleeper(t)
		before := b.containers(t)
		for after := 10 * time.Millisecond; after < 2*time.Second; after += after / 3 {
			cmd := b.command(t, "exec", "web", "--", "/bin/box", "do", "beside stay 1h", "stay 2h")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		time.Sleep(time.Second) // what is being started is not to be seen yet
		if !eventually(func() bool { return slices.Equal(b.containers(t), before) }) {
			t.Errorf("left %q, before %q", b.containers(t), before)
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

// TestExecOutlivesRun: a command in a container does not end with the run that serves containerd, and its streams go
// on.
func TestExecOutlivesRun(t *testing.T) {
	b := newBox(t, "")
	args := b.upArgs(t, directory(t, pod("web", "Always", "sleep")))
	args[slices.Index(args, "100ms")] = "1h"
	run := b.command(t, "run", args...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return len(b.containers(t)) > 0 }) {
		t.Fatal("the pod does not run")
	}
	cmd := b.command(t, "exec", "-i", "web", "--", "/bin/box", "listen")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	expect := func(want string) {
		t.Helper()
		if got, err := out.ReadString('\n'); got != want+"\n" {
			t.Fatalf("%q, %v, want %q\n%s", got, err, want, &stderr)
		}
	}
	expect("listening")
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	_, _ = io.WriteString(in, "still here\n")
	_ = in.Close()
	expect("still here")
	expect("end")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
}

// pty returns both sides of a new pseudo-terminal.
func pty(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestExecTerminal: keys go to the command as they are typed, its terminal has the size of this one, and this one is
// restored in the end.
func TestExecTerminal(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.sleeper(t)
		for name, tt := range map[string]struct {
			command []string
			waitFor string // what the command prints before something is done
			do      func(ours *os.File, cmd *exec.Cmd)
			want    string
			code    int
		}{
			"Ctrl-C":  {[]string{"/bin/box", "trap"}, "ready", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("\x03") }, "got signal 2", 0},
			"Ctrl-D":  {[]string{"/bin/box", "listen"}, "listening", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("hello\r\x04") }, "end", 0},
			"SIGTERM": {[]string{"/bin/box", "stay"}, "", func(_ *os.File, cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) }, "", 143},
			"a new size": {
				[]string{"/bin/box", "do", "echo go", "await /sized", "facts"},
				"go",
				func(ours *os.File, cmd *exec.Cmd) {
					_ = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 140})
					_ = cmd.Process.Signal(syscall.SIGWINCH) // it is not in the session of the terminal
					time.Sleep(time.Second)
					b.run(t, "exec", "web", "--", "/bin/box", "write", "/sized", "yes")
				}, `"ttySize":[50,140]`, 0,
			},
		} {
			out, code := b.inTerminal(t, append([]string{"exec", "-it", "web", "--"}, tt.command...), tt.waitFor, tt.do)
			if code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("%s: exit code %d, output %q, want %d and %q", name, code, out, tt.code, tt.want)
			}
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

// inTerminal runs a command in a terminal of 120 by 40, and does something once this is raw and the command has printed
// a text. It returns what came to the terminal, and the exit code. The terminal must be as before in the end.
func (b *box) inTerminal(t *testing.T, args []string, waitFor string, do func(ours *os.File, cmd *exec.Cmd)) (output string, code int) {
	t.Helper()
	return inTerminal(t, b.command(t, args[0], args[1:]...), waitFor, do)
}

func inTerminal(t *testing.T, cmd *exec.Cmd, waitFor string, do func(ours *os.File, cmd *exec.Cmd)) (output string, code int) {
	t.Helper()
	ours, theirs := pty(t)
	_ = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	seen := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for found := false; ; {
			n, err := ours.Read(buf)
			out.Write(buf[:n])
			if !found && strings.Contains(out.String(), waitFor) {
				found = true
				close(seen)
			}
			if err != nil {
				return
			}
		}
	}()
	raw := func() bool {
		now, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
		return err == nil && now.Lflag&unix.ICANON == 0
	}
	if !eventually(raw) {
		t.Fatalf("%s: the terminal is not raw", cmd)
	}
	if waitFor != "" {
		<-seen
	}
	do(ours, cmd)
	_ = cmd.Wait()
	if after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("%s: the terminal is %+v, %v, and was %+v", cmd, after, err, before)
	}
	_ = theirs.Close()
	<-done
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestExecMuch: whatever a command writes, nothing of it is kept in memory, also if it is read slowly.
func TestExecMuch(t *testing.T) {
	b := newBox(t, "")
	b.sleeper(t)
	const lines, size = 3_000_000, 100
	cmd := b.command(t, "exec", "web", "--", "/bin/box", "flood", "-n", fmt.Sprint(lines), "-size", fmt.Sprint(size))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	n, err := io.CopyN(io.Discard, stdout, lines*size)
	status, serr := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // usage would be that of this process, too
	if err != nil || serr != nil {
		t.Fatalf("%d bytes, %v, %v", n, err, serr)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscanf(peak, "%d kB", &kib); err != nil || kib > 128<<10 {
		t.Errorf("%d KiB of memory, %v", kib, err)
	}
	_, err = io.Copy(io.Discard, stdout)
	if werr := cmd.Wait(); err != nil || werr != nil {
		t.Error(err, werr)
	}
}
