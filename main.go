// Runonce runs a directory of Kubernetes pod manifests on this machine, once, and says
// what became of each pod.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/startup"
	"github.com/runonce/runonce/internal/systemd"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/terminal"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/shim"
)

func main() {
	startup.CollectGarbage()
	process.RelaxMonitor()
	if shim.Invoked(os.Args) {
		os.Exit(shim.Main())
	}
	if process.RunGuard(os.Args, os.Stdin, backend.RunGuard) {
		return
	}
	process.Isolate()
	// A crash, or SIGQUIT, ends in SIGABRT: exit code 2 would say that nothing was started.
	debug.SetTraceback("crash")
	var inputTerminal cmd.Terminal
	if t := terminal.Open(os.Stdin); t != nil {
		inputTerminal = t
	}
	program, err := os.Executable()
	if err != nil {
		program = "" // then nobody removes what a killed run has left before the next one
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, cmd.Signals()...)
	os.Exit(cmd.Main(context.Background(), os.Args, cmd.IO{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdoutTerminal: terminal.Is(os.Stdout), StderrTerminal: terminal.Is(os.Stderr),
		Signals: signals, CatchHangups: func() { signal.Notify(signals, syscall.SIGHUP) },
		CatchPipes: func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) },
		Terminal:   inputTerminal, Guard: backend.Guard, ExecRunning: containerd.ExecRunning,
		Exit: os.Exit, Program: program, Notify: systemd.TakeNotify(), Journal: systemd.JournalSocket,
		Getenv: os.Getenv, Environ: os.Environ, Machine: os.DirFS("/"), Open: backend.Open, Versions: backend.Versions,
	}))
}
