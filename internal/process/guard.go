package process

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardName is the name under which a program is its own guard.
const guardName = "runonce-guard"

// released is what a guard is told that has nothing to do.
const released = "released\n"

// Guard is a process that kills another one, and what that has started, if this process is killed.
type Guard struct {
	pipe    io.WriteCloser
	command *exec.Cmd
}

// StartGuard starts a guard: the program itself, which has to call RunGuard first of all.
func StartGuard() (*Guard, error) {
	g := &Guard{command: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{guardName},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // which a Ctrl-C on the terminal does not reach
	}}
	var err error
	if g.pipe, err = g.command.StdinPipe(); err == nil {
		err = g.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	return g, nil
}

// Watch has the guard kill the process if this one ends before Release.
func (g *Guard) Watch(pid int) {
	_, _ = fmt.Fprintf(g.pipe, "%d\n", pid) // one that was killed cannot help
}

// Release ends the guard.
func (g *Guard) Release() {
	_, _ = io.WriteString(g.pipe, released)
	_ = g.pipe.Close()
	_ = g.command.Wait()
}

// RunGuard is the guard, if the program was started as one. It returns whether that is so.
func RunGuard(args []string, in io.Reader) bool {
	if len(args) == 0 || args[0] != guardName {
		return false
	}
	lines := bufio.NewReader(in)
	fd := -1
	pid := 0
	for {
		line, err := lines.ReadString('\n')
		if line == released {
			return true
		}
		if err != nil {
			break
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(line)); err == nil {
			fd, _ = unix.PidfdOpen(pid, 0)
		}
	}
	// Another process may have its number by now.
	if fd >= 0 && unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) == nil {
		_ = KillTree(pid)
	}
	return true
}
