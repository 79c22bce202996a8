// Package shim is the program that runs next to the containers of a pod: a containerd shim for
// runc and the like, whose task service is package task. The same binary is the logger process
// for third-party shims and the pause process.
package shim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/task"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// answerTimeout bounds the wait for the last answers when the shim ends.
const answerTimeout = time.Second

// Invoked reports whether the program was started as a shim, a logger or a pause process.
// Then the caller must call Main and nothing else. args is os.Args.
func Invoked(args []string) bool {
	if len(args) < 2 {
		return false
	}
	switch args[1] {
	case "-namespace", "-info", protocol.LoggerArg, protocol.PauseArg:
		return true
	}
	return false
}

// Main runs the shim, the logger or the pause process, as os.Args say, and returns the exit code.
func Main() int {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == protocol.LoggerArg:
		err = runLogger(os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == protocol.PauseArg:
		pause()
	default:
		err = runShim()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// arguments are containerd's arguments for a shim, and one of ours.
type arguments struct {
	namespace, id, address, bundle string
	info, version, removeBundles   bool
	command                        string
}

func parse(args []string) (a arguments, err error) {
	f := flag.NewFlagSet("runonce-shim", flag.ContinueOnError)
	f.StringVar(&a.namespace, "namespace", "", "containerd's namespace")
	f.StringVar(&a.id, "id", "", "ID of the task")
	f.StringVar(&a.address, "address", "", "address of containerd")
	f.StringVar(&a.bundle, "bundle", "", "the task's bundle, for the command delete")
	f.BoolVar(&a.info, "info", false, "describe the OCI runtime and exit")
	f.BoolVar(&a.version, "v", false, "print the version and exit")
	f.BoolVar(&a.removeBundles, protocol.RemoveBundlesArg, false, "remove the bundle of each container that is deleted")
	f.String("publish-binary", "", "not used")
	f.Bool("debug", false, "not used")
	err = f.Parse(args)
	a.command = f.Arg(0)
	return a, err
}

func runShim() error {
	a, err := parse(os.Args[1:])
	ctx := context.Background()
	switch {
	case err != nil:
		return err
	case a.version:
		return printVersion()
	case a.info:
		return info(ctx)
	case a.namespace == "":
		return fmt.Errorf("the namespace is missing")
	case a.command == "start":
		return start(ctx, a)
	case a.command == "delete":
		return remove(ctx, a)
	}
	return serve(ctx, a)
}

// serve runs the task service until its last container is deleted.
func serve(ctx context.Context, a arguments) error {
	debug.SetGCPercent(40)
	raiseFileLimit()
	inherited := os.NewFile(protocol.ListenerFD, "listener")
	l, err := net.FileListener(inherited)
	// What l has is a copy.
	if err := errors.Join(err, inherited.Close()); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	// The bundle that it was started in may have to be removed.
	if err := os.Chdir("/"); err != nil {
		return err
	}
	reaper, err := oci.NewReaper()
	if err != nil {
		return err
	}
	var server ttrpc.Server
	leave := func() {
		_ = os.Remove(l.Addr().String())
		_ = l.Close()
	}
	service := task.New(task.Options{
		Namespace: a.namespace, Address: os.Getenv(protocol.AddressEnv), Reaper: reaper,
		Connections: server.Connections, Leave: leave, RemoveBundles: a.removeBundles,
	})
	server.Handle, server.Idle = service.Handle, service.Idle
	go func() { _ = server.Serve(ctx, l) }()
	<-service.Done()
	service.Flush()
	server.Drain(answerTimeout)
	return nil
}
