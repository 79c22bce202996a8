// Command bench measures what starting pods costs: with runonce on its embedded engine and
// on a containerd daemon, with plain containerd client calls on the same daemon (the floor)
// and, if it is installed, with podman kube play. All run the same image and take turns in
// each round. It needs root; `make bench` builds the programs it runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/runonce/runonce/hack/testimages"
)

// image is the smallest of the test images, so that starting the process is measured and
// not the process itself.
const image = "localhost/pause:1"

// state is the directory for sockets and other files that must not survive a reboot.
const state = "/run/runonce-bench"

type options struct {
	sizes  []int
	rounds int
	only   string
	work   string // directory for the benchmark's files
}

func main() {
	o := options{work: "/var/lib/runonce-bench"}
	sizes := flag.String("n", "1,10,30,100", "numbers of pods")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.StringVar(&o.only, "only", "", "names of the variants to run, comma-separated (default all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := o.parseSizes(*sizes)
	if err == nil {
		err = bench(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) parseSizes(s string) error {
	for f := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return fmt.Errorf("reading -n: %q is not a valid number of pods", f)
		}
		o.sizes = append(o.sizes, n)
	}
	return nil
}

func bench(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("containers need root: run make bench as root")
	}
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("entering the project's directory: %w", err)
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return fmt.Errorf("making the working directory: %w", err)
	}
	images := filepath.Join(o.work, "images")
	if _, err := testimages.Write(ctx, images, "pause"); err != nil {
		return err
	}
	meter, err := newMeter()
	if err != nil {
		return err
	}
	all, closeAll, err := variants(ctx, o, meter, images)
	defer func() { err = errors.Join(err, closeAll(), meter.close(), removeTree(o.work), removeTree(state)) }()
	if err != nil {
		return err
	}
	if all, err = warm(ctx, o, meter, all); err != nil {
		return err
	}
	results, err := measureAll(ctx, o, meter, all)
	if err != nil {
		return err
	}
	return report(os.Stdout, o, all, results)
}

// warm runs every variant once, to fill the caches, and returns those that work.
func warm(ctx context.Context, o options, m *meter, all []variant) ([]variant, error) {
	var work []variant
	for _, c := range all {
		_, err := m.measure(ctx, c, o.sizes[0])
		switch {
		case err == nil:
			work = append(work, c)
		case !c.optional:
			return nil, fmt.Errorf("%s: %w", c.name, err)
		default:
			fmt.Fprintf(os.Stderr, "skipping %s, which does not work here: %v\n", c.name, err)
		}
	}
	return work, nil
}

// measureAll runs every variant at every size in every round, and rotates their order.
func measureAll(ctx context.Context, o options, m *meter, all []variant) (samples, error) {
	results := samples{}
	for round := range o.rounds {
		for _, n := range o.sizes {
			for i := range all {
				c := all[(i+round)%len(all)]
				s, err := m.measure(ctx, c, n)
				if err != nil {
					return nil, fmt.Errorf("%s with %d pods: %w", c.name, n, err)
				}
				fmt.Fprintf(os.Stderr, "round %d n=%d %s: wall %.3fs cpu %.3fs\n", round+1, n, c.name, s.wall.Seconds(), s.cpu.Seconds())
				results[key{c.name, n}] = append(results[key{c.name, n}], s)
			}
		}
	}
	return results, nil
}
