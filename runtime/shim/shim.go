// Package shim is the program that runs next to the containers of a pod: containerd's runc
// shim, with a task service that writes the containers' output to CRI log files and their
// exits to exit records, so that both outlive the program that started them. The same binary
// is the logger process for third-party shims and the pause process.
package shim

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// runtimeName is the name of containerd's own shim, which this one extends.
const runtimeName = "io.containerd.runc.v2"

// Invoked reports whether the program was started as a shim, a logger or a pause process.
// Then the caller must call Main and nothing else. args is os.Args.
func Invoked(args []string) bool {
	if len(args) < 2 {
		return false
	}
	switch args[1] {
	case "-namespace", "-info", exitrecord.LoggerArg, exitrecord.PauseArg:
		return true
	}
	return false
}

// Main runs the shim, the logger or the pause process, as os.Args say. When it returns, or
// before, the program ends with 0.
func Main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case exitrecord.LoggerArg:
		runLogger()
	case exitrecord.PauseArg:
		pause()
	default:
		runShim()
	}
}

// runShim ends the program itself only on errors.
func runShim() {
	// In a program that also embeds containerd all of its plugins are registered, and the
	// shim would start every one of them.
	registry.Reset()
	raiseFileLimit()
	// The start helper's output is parsed by containerd, stderr included.
	log.L.Logger.SetOutput(io.Discard)
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskPlugin,
	})
	m := quickDeleter{Shim: manager.NewShimManager(runtimeName)}
	shim.RunShim(context.Background(), m, func(c *shim.Config) { c.NoSetupLogger = true })
}

func newTaskPlugin(ic *plugin.InitContext) (any, error) {
	p, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	events, ok := p.(shim.Publisher)
	if !ok {
		return nil, fmt.Errorf("starting the task service: the publisher is a %T", p)
	}
	p, err = ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	sd, ok := p.(shutdown.Service)
	if !ok {
		return nil, fmt.Errorf("starting the task service: the shutdown service is a %T", p)
	}
	s := &service{containers: map[string]*container{}, socket: listenerPath()}
	s.TTRPCTaskService, err = task.NewTaskService(ic.Context, publisher{Publisher: events, service: s}, sd)
	if err != nil {
		return nil, fmt.Errorf("starting the task service: %w", err)
	}
	// It has just been set, and nothing runs yet.
	runc.Monitor = fifoStarter{ProcessMonitor: &bounder{ProcessMonitor: runc.Monitor}}
	return s, nil
}
