// Command run runs a cluster of one node, with the images of the tests, until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/runonce/runonce/internal/testing/testcluster"
)

func main() {
	simulated := flag.Int("simulated", 0, "add this many simulated nodes, which have the label and the taint \"simulated\"")
	services := flag.Bool("services", false, "make Services and their names work, by kube-proxy and a name server")
	flag.Parse()
	if err := run(*simulated, *services); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(simulated int, services bool) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := testcluster.Start(ctx, "rk-")
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)), c.Remove()) }()
	if err == nil {
		err = c.StartNode(ctx)
	}
	if err == nil && services {
		var stop func(context.Context) error
		stop, err = c.StartServices(ctx)
		defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	}
	if err == nil && simulated > 0 {
		err = c.Simulate(ctx, simulated)
	}
	if err != nil {
		return err
	}
	config, err := c.Kubeconfig(testcluster.Admin)
	if err != nil {
		return err
	}
	fmt.Println(config)
	<-ctx.Done()
	return nil
}
