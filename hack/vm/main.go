// Command vm runs the tests that start real containers in machines which QEMU emulates: no
// KVM is needed, and nothing but memory is written to. A machine has Debian's kernel
// (hack/setup.sh vm) and the files of this one, read-only. There is one with cgroup v2 and a
// first process of ours, and there are two with systemd as the first process: with cgroup
// v2 and, hybrid as systemd calls it, v1.
//
// The arguments are suites, PACKAGE=REGEXP as for go test -run, to run in the plain machine
// or in those of -machine; without any it runs those that depend on what the machines
// differ in.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/hack/vm/job"
)

// suite is a package of which the tests that match are run in some kinds of machines.
type suite struct {
	dir, run string
	in       []string
}

// suites are those that depend on the version of cgroups: how limits and processes get
// there, how containers are stopped, counted and told apart, and the stories of the program;
// and those that depend on systemd.
func suites() []suite {
	plain, booted := []string{job.Plain}, []string{job.SystemdV2, job.SystemdV1}
	every := slices.Concat(plain, booted)
	return []suite{
		{"./hack/vm", "^TestMachine$", every},
		{"./runtime/cgroup", ".", every},
		{"./runtime/ocispec", "TestRunc", plain},
		{"./runtime/containerd", "^(TestEmbeddedConforms|TestOutOfMemory|TestExitWhileNobodyWatches)$/" +
			"^(start_and_exit_code|stop_with_grace|stop_of_a_deaf_process_kills|remove_kills_and_forgets|" +
			"containers_of_one_pod|exec|a_later_process_finds_what_runs|orderly)$", plain},
		{"./runtime/volume", ".", plain},
		{"./runonce/cmd", "^TestStoriesOnEmbedded$/^(happy|critical-preempts|limits)$", booted},
		{"./runonce/cmd", "^TestHugePages$", plain},
		{"./hack/e2e", "^(TestRunTwiceAndChange|TestStopSignal)$/^(embedded)?$", plain},
		{"./hack/e2e", "^TestCgroupDriver$/^embedded$", booted},
		{"./runtime/network", "^TestHostPortSCTP$", plain},
		// All but own-users: the machine's file systems are memory, whose users Linux 6.1 cannot map.
		{"./runonce/cmd", "^TestStoriesOnEmbedded$/^([^o]|o[^w])", plain},
	}
}

func main() {
	limit := flag.Duration("timeout", 90*time.Minute, "the time for all of it")
	memory := flag.Int("memory", 3072, "a machine's memory in MiB")
	machines := flag.String("machine", "", "the machines to run in, of "+strings.Join(names(kinds()), ",")+"; all for the choice of suites, else plain")
	flag.Parse()
	todo, err := choose(*machines, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the tests did not end within %s", *limit))
	code, err := run(ctx, todo, *memory)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// work is what is to be run in one machine.
type work struct {
	kind   kind
	suites []suite
}

// choose returns what to run where: machines is a list of names with commas between them,
// and args are suites; either may be empty.
func choose(machines string, args []string) ([]work, error) {
	in := names(kinds())
	if len(args) > 0 {
		in = []string{job.Plain}
	}
	if machines != "" {
		in = strings.Split(machines, ",")
	}
	for _, name := range in {
		if !slices.Contains(names(kinds()), name) {
			return nil, fmt.Errorf("no machine %q: there are %s", name, strings.Join(names(kinds()), ", "))
		}
	}
	chosen := suites()
	if len(args) > 0 {
		chosen = nil
	}
	for _, a := range args {
		dir, tests, _ := strings.Cut(a, "=")
		chosen = append(chosen, suite{dir, tests, in})
	}
	var todo []work
	for _, k := range kinds() {
		if !slices.Contains(in, k.name) {
			continue
		}
		w := work{kind: k}
		for _, s := range chosen {
			if slices.Contains(s.in, k.name) {
				w.suites = append(w.suites, s)
			}
		}
		todo = append(todo, w)
	}
	return todo, nil
}

func names(kinds []kind) []string {
	list := make([]string, 0, len(kinds))
	for _, k := range kinds {
		list = append(list, k.name)
	}
	return list
}

// run runs the suites in one machine after the other, each with so many MiB, and returns
// the exit code: 0 when all of them passed in all machines.
func run(ctx context.Context, todo []work, memory int) (int, error) {
	root, err := testimages.Root()
	if err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp("", "runonce-vm-")
	if err != nil {
		return 0, fmt.Errorf("making a directory for the test programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	w := workshop{root: root, tmp: tmp, vm: filepath.Join(root, ".cache", "vm")}
	code := 0
	var errs []error
	for _, t := range todo {
		c, err := w.runIn(ctx, t, memory)
		if err != nil {
			errs = append(errs, fmt.Errorf("running the tests in machine %s: %w", t.kind.name, err))
		}
		code = max(code, c)
		if ctx.Err() != nil {
			break
		}
	}
	return code, errors.Join(errs...)
}

// runIn runs suites in one machine and returns its exit code.
func (w workshop) runIn(ctx context.Context, t work, memory int) (int, error) {
	initrd, err := w.initrd(ctx, t.kind, t.suites)
	if err != nil {
		return 0, err
	}
	m := machine{kind: t.kind, vm: w.vm, initrd: initrd, memory: memory, console: filepath.Join(w.tmp, "console-"+t.kind.name)}
	fmt.Println("vm: starting machine", t.kind.name)
	start := time.Now()
	var code *int
	err = m.run(ctx, func(r io.Reader) error {
		var err error
		code, err = relay(r, os.Stdout)
		return err
	})
	if code == nil {
		err = errors.Join(context.Cause(ctx), err, errors.New("the machine ended without a result"), m.lastWords())
	}
	if err != nil || code == nil {
		return 0, err
	}
	fmt.Printf("vm: machine %s ended with %d after %.1fs\n", t.kind.name, *code, time.Since(start).Seconds())
	return *code, nil
}

// nothing is what a test program says when none of its tests match.
const nothing = "testing: warning: no tests to run"

// relay copies the machine's output and returns the exit code that it ends with; nil when
// it ends without. A suite without tests is a failure: its tests have other names by now.
func relay(r io.Reader, w io.Writer) (*int, error) {
	var code *int
	empty := false
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		empty = empty || line == nothing
		if n, ok := strings.CutPrefix(line, job.Exit); ok {
			c, err := strconv.Atoi(n)
			if err != nil {
				return nil, fmt.Errorf("reading the exit code: %w", err)
			}
			if code = &c; empty && c == 0 {
				*code = 1
			}
		} else if line != "" || err == nil {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return code, err
			}
		}
		if errors.Is(err, io.EOF) {
			return code, nil
		}
		if err != nil {
			return code, err
		}
	}
}
