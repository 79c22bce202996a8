// Command imagebench measures what importing and pulling a large image costs, with layers compressed by gzip and by zstd:
// with runonce on its embedded engine, with ctr and nerdctl on a containerd daemon, with skopeo, which copies to a
// directory and unpacks nothing, and with podman, if they are installed; and what it costs to write as many bytes (dd),
// and to decompress them (igzip, zstd). They take turns in each round, with empty stores. The registry is on this
// machine. It needs root; `make bench-images` builds and installs what it runs.
package main

import (
	"bytes"
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

	"github.com/runonce/runonce/hack/bench/cputime"
	"github.com/runonce/runonce/hack/bench/memory"
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
type cost struct {
	wall, cpu time.Duration
	memory    int64 // of the program's own process, without pages of files, bytes
}

func bench(ctx context.Context, dir string, rounds, size int) (err error) {
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := setup{dir: dir, runonce: filepath.Join(root, "bin/runonce")}
	stop, err := s.prepare(ctx, root, size)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, s.compression = range compressions {
		for _, j := range []job{s.importJob(), s.pullJob()} {
			costs, err := s.measureAll(ctx, j, rounds)
			if err != nil {
				return err
			}
			report(j, string(s.compression), size, costs)
		}
	}
	return nil
}

// measureAll measures all tools in each round, and rotates their order.
func (s *setup) measureAll(ctx context.Context, j job, rounds int) (map[string][]cost, error) {
	costs := map[string][]cost{}
	for round := range rounds {
		for i := range j.tools {
			t := j.tools[(i+round)%len(j.tools)]
			fmt.Fprintf(os.Stderr, "imagebench: %s, %s, round %d of %d: %s\n", j.name, s.compression, round+1, rounds, t.name)
			c, err := s.measure(ctx, t)
			if err != nil {
				return nil, err
			}
			costs[t.name] = append(costs[t.name], c)
		}
	}
	return costs, nil
}

// measure runs the command of a tool, whose store is empty before and after.
func (s *setup) measure(ctx context.Context, t tool) (cost, error) {
	if err := os.Mkdir(s.store(""), 0o700); err != nil {
		return cost{}, fmt.Errorf("making the store of %s: %w", t.name, err)
	}
	before, err := cputime.Of(s.daemon.Pid)
	if err != nil {
		return cost{}, err
	}
	c, err := s.command(ctx, t.command...)
	if err != nil {
		return cost{}, err
	}
	after, err := cputime.Of(s.daemon.Pid)
	c.cpu += after - before
	if err == nil && len(t.clean) > 0 {
		_, err = s.command(ctx, t.clean...)
	}
	return c, errors.Join(err, os.RemoveAll(s.store("")))
}

// command runs a program and returns what it and its children took.
func (s *setup) command(ctx context.Context, args ...string) (cost, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), s.env...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	begin := time.Now()
	if err := c.Start(); err != nil {
		return cost{}, fmt.Errorf("%s: %w", args[0], err)
	}
	most := memory.Watch(c.Process.Pid)
	err := c.Wait()
	peak, _ := most()
	if err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return cost{time.Since(begin), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), peak}, nil
}

// report prints the medians as Markdown, with their ratios to those of ctr, and to the slower one of the machine's floors.
func report(j job, compression string, size int, costs map[string][]cost) {
	median := func(name string, of func(cost) float64) float64 {
		all := make([]float64, 0, len(costs[name]))
		for _, c := range costs[name] {
			all = append(all, of(c))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	wall, cpu := func(c cost) float64 { return c.wall.Seconds() }, func(c cost) float64 { return c.cpu.Seconds() }
	peak := func(c cost) float64 { return float64(c.memory) / (1 << 20) }
	slower := 0.0
	for _, t := range j.tools {
		if t.floor {
			slower = max(slower, median(t.name, wall))
		}
	}
	fmt.Printf("\n| %s, %d MB, %s | wall s | x %s | x floor | CPU s | x %s | MiB |\n|---|---|---|---|---|---|---|\n", j.name, size, compression, reference, reference)
	for _, t := range j.tools {
		w, c := median(t.name, wall), median(t.name, cpu)
		fmt.Printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f |\n", t.name,
			w, w/median(reference, wall), w/slower, c, c/median(reference, cpu), median(t.name, peak))
	}
}
