// Package flocktest lets tests wait for locks that another process holds.
package flocktest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"testing"
)

// Hold runs a program that locks something, prints "locked" and ends with its standard input. It
// returns once the lock is held, which is until the test ends. env is added to the environment.
func Hold(t testing.TB, env string, program string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	cmd.Env = append(os.Environ(), env)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // it may be stopped
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd.Process
}
