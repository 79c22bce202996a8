// Command imagebench measures what importing and pulling a large image costs: with runonce on its
// embedded engine, with ctr on a containerd daemon (the floor), with skopeo, which copies to a
// directory and unpacks nothing, and with podman, if it is installed. They take turns in each
// round, with empty stores. The registry is on this machine. It needs root; `make bench-images`
// builds and installs what it runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/testing/testimages"
)

func main() {
	rounds := flag.Int("rounds", 3, "measure `N` times")
	size := flag.Int("size", 500, "size of the image in `MB`")
	dir := flag.String("dir", "/var/lib/runonce-imagebench", "work in `DIR`, which must not exist")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := bench(ctx, *dir, *rounds, *size)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "imagebench: %v\n", err)
		os.Exit(1)
	}
}

// cost is what one command took.
type cost struct{ wall, cpu time.Duration }

func bench(ctx context.Context, dir string, rounds, size int) (err error) {
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := setup{dir: dir, runonce: filepath.Join(root, "bin/runonce"), archive: filepath.Join(dir, "image.tar")}
	stop, err := s.prepare(ctx, root, size)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, j := range []job{s.importJob(), s.pullJob()} {
		costs := map[string][]cost{}
		for round := range rounds {
			for i := range j.tools {
				t := j.tools[(i+round)%len(j.tools)]
				fmt.Fprintf(os.Stderr, "imagebench: %s, round %d of %d: %s\n", j.name, round+1, rounds, t.name)
				c, err := s.measure(ctx, t)
				if err != nil {
					return err
				}
				costs[t.name] = append(costs[t.name], c)
			}
		}
		report(j, size, costs)
	}
	return nil
}

// measure runs the command of a tool, whose store is empty before and after.
func (s *setup) measure(ctx context.Context, t tool) (cost, error) {
	if err := os.Mkdir(s.store(""), 0o700); err != nil {
		return cost{}, fmt.Errorf("making the store of %s: %w", t.name, err)
	}
	before, err := s.daemonCPU()
	if err != nil {
		return cost{}, err
	}
	begin := time.Now()
	used, err := s.command(ctx, t.command...)
	if err != nil {
		return cost{}, err
	}
	c := cost{wall: time.Since(begin), cpu: used}
	after, err := s.daemonCPU()
	c.cpu += after - before
	if err == nil && len(t.clean) > 0 {
		_, err = s.command(ctx, t.clean...)
	}
	return c, errors.Join(err, os.RemoveAll(s.store("")))
}

// command runs a program and returns the CPU time of it and its children.
func (s *setup) command(ctx context.Context, args ...string) (time.Duration, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), s.env...)
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}

// report prints the medians, and their ratios to those of ctr.
func report(j job, size int, costs map[string][]cost) {
	median := func(name string, of func(cost) time.Duration) time.Duration {
		all := make([]time.Duration, 0, len(costs[name]))
		for _, c := range costs[name] {
			all = append(all, of(c))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	wall, cpu := func(c cost) time.Duration { return c.wall }, func(c cost) time.Duration { return c.cpu }
	fmt.Printf("%s of an image of %d MB\n%-10s %8s %8s %8s %8s\n", j.name, size, "", "wall", "x ctr", "CPU", "x ctr")
	for _, t := range j.tools {
		w, c := median(t.name, wall), median(t.name, cpu)
		fmt.Printf("%-10s %7.2fs %8.2f %7.2fs %8.2f\n", t.name,
			w.Seconds(), w.Seconds()/median(floor, wall).Seconds(), c.Seconds(), c.Seconds()/median(floor, cpu).Seconds())
	}
}
