// Command vm runs the tests that start real containers in a machine with cgroup v2, which
// QEMU emulates: no KVM is needed, and nothing but memory is written to. The machine has
// Debian's kernel (hack/setup.sh vm) and the files of this one, read-only.
//
// The arguments are suites, PACKAGE=REGEXP as for go test -run; without any it runs those
// that depend on the cgroup version.
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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/hack/vm/job"
)

// suite is a package of which the tests that match are run.
type suite struct{ dir, run string }

// suites are those that depend on the version of cgroups: how limits and processes get
// there, how containers are stopped, counted and told apart, and a story of the program.
func suites() []suite {
	return []suite{
		{"./runtime/cgroup", "."},
		{"./runtime/spec", "TestRunc"},
		{"./runtime/ctrd", "^(TestEmbeddedConforms|TestOutOfMemory|TestExitWhileNobodyWatches)$/" +
			"^(start_and_exit_code|stop_with_grace|stop_of_a_deaf_process_kills|remove_kills_and_forgets|" +
			"containers_of_one_pod|exec|a_later_process_finds_what_runs|orderly)$"},
		{"./runtime/volume", "."},
		{"./runonce/cmd", "^TestCasesOnContainerd$/^(happy|critical-preempts|crash-then-success|shared-processes|pod-level|stdin-and-tty|limits|privileges|users|projected|order)$"},
		{"./runonce/cmd", "^TestHugePages$"},
		{"./hack/e2e", "^(TestRunTwiceAndChange|TestStopSignal)$/^(embedded)?$"},
	}
}

func main() {
	limit := flag.Duration("timeout", 40*time.Minute, "the time for all of it")
	memory := flag.Int("memory", 3072, "the machine's memory in MiB")
	flag.Parse()
	chosen := suites()
	if flag.NArg() > 0 {
		chosen = nil
	}
	for _, a := range flag.Args() {
		dir, tests, _ := strings.Cut(a, "=")
		chosen = append(chosen, suite{dir, tests})
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the tests did not end within %s", *limit))
	code, err := run(ctx, chosen, *memory)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run runs the suites in a machine with so many MiB and returns the exit code.
func run(ctx context.Context, chosen []suite, memory int) (int, error) {
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
	initrd, err := w.initrd(ctx, chosen)
	if err != nil {
		return 0, err
	}
	m := machine{vm: w.vm, initrd: initrd, memory: memory, console: filepath.Join(tmp, "console")}
	fmt.Println("vm: starting the machine")
	var code *int
	err = m.run(ctx, func(r io.Reader) error {
		code, err = relay(r, os.Stdout)
		return err
	})
	if code == nil {
		err = errors.Join(context.Cause(ctx), err, errors.New("the machine ended without a result"), m.lastWords())
	}
	if err != nil || code == nil {
		return 0, fmt.Errorf("running the tests in the machine: %w", err)
	}
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
