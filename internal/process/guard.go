package process

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"syscall"
)

// guardName is the name under which a program is its own guard.
const guardName = "runonce-guard"

// StartGuard starts a guard: the program itself, which has to call RunGuard first of all. It does what the arguments
// say if this process ends before release is called.
func StartGuard(args ...string) (release func(), err error) {
	command := exec.Cmd{
		Path: "/proc/self/exe", Args: slices.Concat([]string{guardName}, args),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // which a Ctrl-C on the terminal does not reach
	}
	pipe, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	return func() {
		_ = command.Process.Kill() // it may not have got as far as to read
		_ = command.Wait()
		_ = pipe.Close()
	}, nil
}

// RunGuard is the guard, if the program was started as one, and returns whether that is so. args are those of the
// program, and in is its standard input.
func RunGuard(args []string, in io.Reader, act func(args []string)) bool {
	if len(args) == 0 || args[0] != guardName {
		return false
	}
	_, _ = in.Read(make([]byte, 1)) // until the other process ends
	act(args[1:])
	return true
}
