// Command run runs a cluster of one node, with the images of the tests, until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/runonce/runonce/hack/testcluster"
	"github.com/runonce/runonce/hack/testimages"
)

func main() {
	simulated := flag.Int("simulated", 0, "add this many simulated nodes, which have the label and the taint \"simulated\"")
	flag.Parse()
	if err := run(*simulated); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(simulated int) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	bin, err := testcluster.Find(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/run", "rk-")
	if err != nil {
		return err
	}
	images := filepath.Join(dir, "images")
	written, err := testimages.Write(ctx, images)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	var archives []string
	for _, i := range written {
		archives = append(archives, filepath.Join(images, i.Name+".tar"))
	}
	c, err := testcluster.Start(ctx, bin, dir)
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)), c.Remove()) }()
	if err == nil {
		err = c.StartNode(ctx, archives...)
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
