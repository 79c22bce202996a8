// Command bench measures what starting pods costs: with runonce on its embedded engine and
// on a containerd daemon, with plain containerd client calls on the same daemon (the floor)
// and, if they are installed, with crictl and podman kube play. All run the same image and take turns in
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
	"slices"
	"syscall"

	"github.com/runonce/runonce/internal/testing/testimages"
)

// image is the smallest of the test images, so that starting the process is measured and
// not the process itself.
const image = "localhost/pause:1"

// base is where the benchmark mounts its file systems.
const base = "/var/lib/runonce-bench"

func main() {
	o, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
	case o.render != "":
		err = render(o.render)
	case os.Geteuid() != 0:
		err = errors.New("containers need root: run make bench as root")
	default:
		if err = enterNamespaces(); err == nil {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			err = bench(ctx, o)
			stop()
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, o options) (err error) {
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("entering the project's directory: %w", err)
	}
	w, err := openWorkspace(ctx, base, o.dir)
	if w != nil {
		defer func() { err = errors.Join(err, w.close()) }()
	}
	if err != nil {
		return err
	}
	m, err := newMeter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if m.reports, err = openReports(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: CPU time is not split by program: %v\n", err)
		o.split = 0
	}
	o.commit, o.calls = commit(ctx), o.calls && o.split > 0 && canCount()
	if _, err := testimages.Write(ctx, filepath.Join(w.disk, "images"), "pause"); err != nil {
		return err
	}
	all, stop, err := variants(ctx, o, m, w)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	if err := m.adopt(all); err != nil {
		return err
	}
	b := &benchmark{options: o, meter: m, results: samples{}, calls: map[string]map[string]calls{}}
	return b.finish(b.measureAll(ctx, all, filepath.Join(w.base, "perf.data")), w.note, all)
}

// measureAll measures what the options ask for. The file is for perf.
func (b *benchmark) measureAll(ctx context.Context, all []variant, file string) error {
	if err := b.run(ctx, all); err != nil {
		return err
	}
	if b.options.calls {
		if err := b.count(ctx, all, file); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(all, func(v variant) bool { return v.name == embeddedName }); i >= 0 {
		return b.many(ctx, all[i])
	}
	return nil
}

// finish prints what was measured, also before an error.
func (b *benchmark) finish(err error, note string, all []variant) error {
	if len(b.results) == 0 || b.quick && err != nil {
		return err
	}
	names := make([]string, 0, len(all))
	for _, v := range all {
		names = append(names, v.name)
	}
	r := newRecord(b.options, note, names, b.results)
	for name, parts := range b.calls {
		r.find(netHost, b.split, name).Calls = parts
	}
	r.Steps = b.steps
	if b.quick {
		earlier, err := readRecord(recordFile)
		return errors.Join(err, r.compare(os.Stdout, earlier))
	}
	if b.out != "" {
		err = errors.Join(err, r.write(b.out))
	}
	return errors.Join(err, r.markdown(os.Stdout))
}

// benchmark is the state of the measurement.
type benchmark struct {
	options
	*meter
	results samples
	broken  []string                    // optional variants that have failed
	calls   map[string]map[string]calls // by variant and part
	steps   []step
}

// run runs every variant with every job in every round, and rotates their order.
func (b *benchmark) run(ctx context.Context, all []variant) error {
	for round := range b.rounds {
		for _, j := range b.jobs() {
			for i := range all {
				v := all[(i+round)%len(all)]
				if b.skips(v, j) {
					continue
				}
				if err := b.one(ctx, round+1, v, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *benchmark) skips(v variant, j job) bool {
	return !v.ours && !slices.Contains(b.sizes, j.n) || v.hostOnly && j.net != netHost || slices.Contains(b.broken, v.name)
}

// count counts the system calls of one more run of each variant, which takes longer than others.
func (b *benchmark) count(ctx context.Context, all []variant, file string) error {
	j := job{netHost, b.split}
	for _, v := range all {
		if _, measured := b.results[key{v.name, j}]; !measured || b.skips(v, j) {
			continue
		}
		fmt.Fprintf(os.Stderr, "counting system calls, %d pods, %s\n", j.n, v.name)
		traced := v
		traced.start = func(j job) []string { return perfRecord(file, v.start(j)) }
		if _, err := b.measure(ctx, traced, j, false); err != nil {
			return err
		}
		parts, err := perfScript(ctx, file, j.n)
		if err != nil {
			return err
		}
		b.calls[v.name] = parts
	}
	return os.Remove(file)
}

// one measures a variant once. An optional variant that fails is left out from then on.
func (b *benchmark) one(ctx context.Context, round int, v variant, j job) error {
	// A run before fills the caches, which some machines empty within half a minute.
	s, err := b.measure(ctx, v, job{j.net, slices.Min(b.sizes)}, false)
	if err == nil {
		s, err = b.measure(ctx, v, j, j.n == b.split)
	}
	where := fmt.Sprintf("round %d of %d, %s, %d pods, %s", round, b.rounds, j.net, j.n, v.name)
	switch {
	case ctx.Err() != nil:
		return errors.Join(errors.New("interrupted"), err)
	case err != nil && !v.optional:
		return fmt.Errorf("%s: %w", where, err)
	case err != nil:
		b.broken = append(b.broken, v.name)
		fmt.Fprintf(os.Stderr, "%s: leaving it out from now on: %v\n", where, err)
		return b.killAll(append(v.cgroups, clientGroup)...)
	}
	fmt.Fprintf(os.Stderr, "%s: wall %.3f s, CPU %.3f s, other work %.2f cores\n", where, s.wall.Seconds(), s.cpu.Seconds(), s.other)
	s.round = round
	k := key{v.name, j}
	b.results[k] = append(b.results[k], s)
	return nil
}
