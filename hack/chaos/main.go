// Command chaos runs random pods, kills the processes that run them at random moments, and then
// compares what runonce reports with what the containers themselves have recorded. It stops
// at the first round that leaks something or reports something false, and keeps its files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/runonce/runonce/hack/daemon"
	"github.com/runonce/runonce/hack/testimages"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	o := options{out: os.Stdout}
	flag.IntVar(&o.rounds, "rounds", 40, "number of rounds")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random pods and faults")
	flag.StringVar(&o.engine, "engine", embedded, "embedded, or the version of a containerd daemon: "+string(daemon.Current)+" or "+string(daemon.Debian))
	flag.StringVar(&o.program, "program", "bin/runonce", "the runonce to try")
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
	rounds  int
	seed    uint64
	engine  string
	program string
	out     io.Writer // gets a line for each round, and the figures
}

// run carries out the rounds and prints how often what was broken. Its error is that of the
// first round that fails.
func run(ctx context.Context, o options) error {
	program, err := filepath.Abs(o.program)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/run", "rx-") // a socket's path has to be short
	if err != nil {
		return err
	}
	// Root of a pod with users of its own is nobody here, and has to reach its root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	archives := filepath.Join(dir, "images")
	if _, err := testimages.Write(ctx, archives, "box"); err != nil {
		return err
	}
	w := &world{dir: dir, program: program, archives: archives, faults: map[string]int{}}
	if o.engine != embedded {
		if err := w.startDaemon(ctx, daemon.Version(o.engine)); err != nil {
			return err
		}
	}
	for n := range o.rounds {
		w.Rand = rand.New(rand.NewPCG(o.seed, uint64(n)))
		begin := time.Now()
		r := w.newRound()
		if err := r.run(ctx); err != nil {
			return fmt.Errorf("round %d of seed %d (%s), see %s: %w", n, o.seed, r, dir, err)
		}
		_, _ = fmt.Fprintf(o.out, "%d/%d  %.1fs  %s\n", n+1, o.rounds, time.Since(begin).Seconds(), r)
	}
	w.print(o)
	if w.daemon != nil {
		err = w.daemon.Stop()
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// print prints the figures.
func (w *world) print(o options) {
	_, _ = fmt.Fprintf(o.out, "%s: %d rounds, %d pods, %d instances of containers: no leak, no false result\n", o.engine, o.rounds, w.pods, w.instances)
	for _, f := range faults {
		if n := w.faults[f.name]; n > 0 {
			_, _ = fmt.Fprintf(o.out, "  %4d x %s\n", n, f.name)
		}
	}
}
