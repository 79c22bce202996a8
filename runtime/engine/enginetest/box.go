package enginetest

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// Box imitates the program of the test images (testdata/images/box): what a container's
// process does depends on its arguments. Applets that serve, or wait for something outside,
// run until they are stopped.
type Box struct {
	mu    sync.Mutex
	calls map[string]int // calls of flaky by pod and file
}

// Program is the script for Engine.Program.
func (b *Box) Program(c engine.ContainerConfig) Behavior {
	if c.Pause {
		return Behavior{Runs: true}
	}
	args := c.Spec.Process.Args
	name := filepath.Base(args[0])
	if name == "box" && len(args) > 1 {
		args = args[1:]
		name = args[0]
	}
	life := b.applet(c, name, args[1:])
	if life.Err != nil {
		life.Err = &failure.Error{Why: failure.ReasonRunError, Final: true, Ended: true, Err: &exec.Error{Name: args[0], Err: life.Err}}
	}
	life.Exec = func(command []string) engine.ExecResult {
		end := b.applet(c, command[1], command[2:])
		return engine.ExecResult{ExitCode: end.Code, Output: []byte(strings.Join(slices.Concat(end.Log, end.Errors), "\n"))}
	}
	life.ExecTakes = func(command []string) time.Duration {
		if len(command) < 2 || command[1] != "sleep" {
			return 0
		}
		if end := b.applet(c, command[1], command[2:]); !end.Runs {
			return end.After
		}
		return math.MaxInt64
	}
	return life
}

func (b *Box) applet(c engine.ContainerConfig, name string, args []string) Behavior {
	switch name {
	case "exit", "crash", "kill", "oom":
		return ends(name, args)
	case "echo", "error":
		return Behavior{Log: []string{strings.Join(args, " ")}}
	case "write", "append", "facts":
		return Behavior{}
	case "flaky":
		return b.flaky(c, args)
	case "do":
		return b.do(c, args)
	case "sleep", "stay", "trap", "burn":
		life := Behavior{Runs: true}
		switch name {
		case "stay":
			life.IgnoresTerm, life.Log = true, []string{"deaf from now on"}
		case "trap":
			life.HandlesTerm, life.Log = true, []string{"ready"}
		}
		if len(args) == 1 {
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return Behavior{Code: 1, Log: []string{err.Error()}}
			}
			life.Runs, life.After = false, d
		}
		return life
	case "listen":
		return Behavior{Runs: c.Stdin, Log: []string{"listening"}}
	case "web", "await", "produce", "consume", "pause":
		return Behavior{Runs: true}
	}
	return Behavior{Err: exec.ErrNotFound}
}

// do runs applets one after the other, each of them one argument, up to the first that fails
// or does not end.
func (b *Box) do(c engine.ContainerConfig, args []string) Behavior {
	var all Behavior
	for _, arg := range args {
		words := strings.Fields(arg)
		life := b.applet(c, words[0], words[1:])
		all.Log, all.Errors = append(all.Log, life.Log...), append(all.Errors, life.Errors...)
		all.After += life.After
		if all.HandlesTerm {
			all.TermAfter += life.After
		}
		all.Code, all.IgnoresTerm = life.Code, life.IgnoresTerm
		all.Runs, all.HandlesTerm = all.Runs || life.Runs, all.HandlesTerm || life.HandlesTerm
		all.OOM = all.OOM || life.OOM
		if life.Runs && !life.HandlesTerm || life.Code != 0 {
			break
		}
	}
	return all
}

func ends(name string, args []string) Behavior {
	if name == "crash" {
		return Behavior{Code: 2, Log: append([]string{"panic: " + strings.Join(args, " ")}, "goroutine 1 [running]:")}
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return Behavior{Code: 1, Log: []string{err.Error()}}
	}
	if name == "kill" {
		code += 128
	}
	life := Behavior{Code: int32(code)}
	life.OOM = name == "oom"
	if len(args) > 1 {
		life.Log = []string{strings.Join(args[1:], " ")}
	}
	return life
}

// flaky fails until it was called N times for the same file of the same pod, then runs.
func (b *Box) flaky(c engine.ContainerConfig, args []string) Behavior {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return Behavior{Code: 1, Log: []string{err.Error()}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	key := c.PodUID + args[0]
	b.calls[key]++
	if b.calls[key] < n {
		return Behavior{Code: 1, Errors: []string{fmt.Sprintf("flaky: call %d of %d fails", b.calls[key], n)}}
	}
	return Behavior{}
}
