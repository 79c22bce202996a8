package cmd_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/shim"
)

// asProgram is the environment variable that makes the test binary the program itself.
const asProgram = "RUNONCE_TEST_PROGRAM"

// TestMain lets the test binary be the shim and the program, too: a build without the
// packed shim runs a copy of itself.
func TestMain(m *testing.M) {
	if shim.Invoked(os.Args) {
		shim.Main()
		return
	}
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancelCause(testContext())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go cmd.Watch(signals, cancel, os.Exit)
	os.Exit(cmd.Main(ctx, os.Args, cmd.IO{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Machine: os.DirFS("/"), Open: cmd.OpenContainerd,
	}))
}

// testContext is for what outlives a test.
func testContext() context.Context { return context.Background() }
