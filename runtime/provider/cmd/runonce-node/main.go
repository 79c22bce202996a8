// Command runonce-node makes this machine a node of a Kubernetes cluster, without a kubelet.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"

	"github.com/runonce/runonce/runtime/shim"
)

func main() {
	// The engine starts this program again as the shim of its containers.
	if shim.Invoked(os.Args) {
		os.Exit(shim.Main())
	}
	os.Exit(start(os.Args[1:]))
}

// start runs the node until a signal ends it, and returns the exit code.
func start(args []string) int {
	log := slog.Default()
	vklog.L = logger{log}
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // package flag has printed it
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, log); err != nil && ctx.Err() == nil {
		log.Error("could not run the node", "error", err)
		return 1
	}
	return 0
}
