package backend

import (
	"context"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd"
)

// Guard starts a process that ends a command in a container, with what it has started, if this process ends before it
// has called release.
func Guard(o Options, container, command string) (release func(), err error) {
	return process.StartGuard(o.Root, o.State, o.Namespace, o.Address, container, command)
}

// RunGuard is what the process that Guard starts does if it has to. Nobody would read an error.
func RunGuard(args []string) {
	if len(args) != 6 {
		return
	}
	o := containerd.Options{Root: args[0], State: args[1], Namespace: args[2], Address: args[3], StartsNothing: true}
	_ = containerd.EndCommand(context.Background(), o, args[4], args[5])
}
