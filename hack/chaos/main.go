// Command chaos runs random pods, kills the processes that run them at random moments, and then
// compares what runonce reports with what the containers themselves have recorded. It stops
// at the first round that leaks something or reports something false, and keeps its files, with
// commands.log, which has what every command printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testimages"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	o := options{out: os.Stdout}
	flag.IntVar(&o.rounds, "rounds", 40, "number of rounds")
	flag.Int64Var(&o.first, "first", 0, "number of the first round, to repeat one")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random pods and faults")
	flag.StringVar(&o.engine, "engine", embedded, "embedded, or the version of a containerd daemon: "+string(daemon.Current)+" or "+string(daemon.Debian))
	flag.StringVar(&o.runtime, "oci-runtime", "", "OCI runtime: runc or crun (default what runonce chooses)")
	flag.StringVar(&o.program, "program", "bin/runonce", "the runonce to try")
	flag.IntVar(&o.parallel, "parallel", 1, "number of rounds at a time, each with an installation of its own")
	flag.StringVar(&o.kinds, "kinds", "", "kinds of rounds, separated by commas: "+kindNames()+" (default all)")
	flag.DurationVar(&o.slow, "slow", 0, "let a round that takes longer fail, to see why; 0 for no limit")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		cancel()
		os.Exit(1)
	}
}

// embedded is the engine of the program itself.
const embedded = "embedded"

type options struct {
	rounds   int
	first    int64
	seed     uint64
	engine   string
	runtime  string
	program  string
	parallel int
	kinds    string
	slow     time.Duration
	out      io.Writer // gets a line for each round, and the figures
}

// run carries out the rounds and prints how often what was broken. Its error is that of the
// rounds that fail, after which no other begins.
func run(ctx context.Context, o options) error {
	program, err := filepath.Abs(o.program)
	if err != nil {
		return err
	}
	kinds, err := chooseKinds(o.kinds, o.engine)
	if err != nil {
		return err
	}
	archives, err := os.MkdirTemp("/run", "rx-images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(archives) }()
	if _, err := testimages.Write(ctx, archives, "box"); err != nil {
		return err
	}
	s := &series{options: o, kinds: kinds, faults: map[string]int{}, durations: map[string][]time.Duration{}}
	s.next.Store(o.first)
	var wg sync.WaitGroup
	errs := make([]error, max(1, o.parallel))
	for i := range errs {
		wg.Go(func() {
			w := &world{series: s, program: program, archives: archives, firstPort: int32(firstPort + i*portsOfWorld)}
			errs[i] = w.rounds(ctx)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.print()
	return nil
}

// series is what all rounds share.
type series struct {
	options
	kinds []kind

	next    atomic.Int64 // number of the next round
	stopped atomic.Bool  // no other round begins

	mu                      sync.Mutex // guards the rest, and what is printed
	finished, pods, numbers int
	faults                  map[string]int
	durations               map[string][]time.Duration
}

// conclude counts a round that has succeeded, and prints a line.
func (s *series) conclude(n int, r *round, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished++
	s.pods += r.counted
	s.numbers += r.instances
	s.durations[r.kind.name] = append(s.durations[r.kind.name], took)
	for _, name := range r.faults {
		s.faults[name]++
	}
	_, _ = fmt.Fprintf(s.out, "%d/%d  %d  %.1fs  %s: %s\n", s.finished, s.options.rounds, n, took.Seconds(), r.kind.name, r)
}

// print prints the figures.
func (s *series) print() {
	_, _ = fmt.Fprintf(s.out, "%s: %d rounds, %d pods, %d instances of containers: no leak, no false result\n", s.engine, s.finished, s.pods, s.numbers)
	for _, name := range slices.Sorted(maps.Keys(s.durations)) {
		all := slices.Sorted(slices.Values(s.durations[name]))
		_, _ = fmt.Fprintf(s.out, "  %4d x %-8s median %.1fs, at most %.1fs\n", len(all), name, all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		_, _ = fmt.Fprintf(s.out, "  %4d x %s\n", s.faults[name], name)
	}
}
