// Command vm runs tests that start real containers in virtual machines. QEMU emulates them, so
// KVM is not needed. A machine runs Debian's kernel (see hack/setup.sh) and sees the files of
// the host, read-only; what it writes stays in memory. There are four kinds: plain has cgroup
// v2 and an init program of ours, systemd has cgroup v2 and systemd, and systemd-v1 has
// systemd's hybrid mode of cgroup v1. arm64, which has to be named, is like plain, but its root
// is made of Debian's packages for that architecture.
//
// The arguments are suites, PACKAGE=REGEXP as for go test -run, to run in the plain machine or
// in those of -machine. Without arguments, vm runs the suites that depend on cgroups or
// systemd.
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

	"github.com/runonce/runonce/hack/vm/job"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// suite selects tests of a package and the kinds of machines to run them in.
type suite struct {
	dir, run string
	in       []string
}

// suites returns the suites that depend on the cgroup version or on systemd, with all stories or only those for which the
// kernel matters.
func suites(all bool) []suite {
	stories, bootedStories := kernelStories, "happy|limits"
	if all {
		stories += "|" + moreStories
		bootedStories += "|critical-preempts|order"
	}
	plain, booted := []string{job.Plain, job.ARM64}, []string{job.SystemdV2, job.SystemdV1}
	every := slices.Concat(plain, booted)
	return []suite{
		{"./hack/vm", "^TestMachine$", every},
		{"./runtime/cgroup", ".", every},
		{"./runtime/ocispec", "TestRunc", plain},
		{"./runtime/containerd", "^(TestLook|TestEmbeddedConforms|TestCrunConforms|TestOutOfMemory|TestExitWhileNobodyWatches)$/" +
			"^(start_and_exit_code|stop_with_grace|stop_of_a_deaf_process_kills|remove_kills_and_forgets|" +
			"containers_of_one_pod|exec|a_later_process_finds_what_runs|orderly)$", plain},
		{"./runtime/containerd", "^(TestCrunFaults|TestTrial.*)$", plain},
		{"./runonce/cmd", "^TestOCIRuntime$", plain},
		{"./runtime/volume", ".", plain},
		{"./runonce/cmd", "^TestStoriesOnEmbedded$/^(" + bootedStories + ")$", booted},
		{"./runonce/cmd", "^TestHugePages$", plain},
		{"./hack/e2e", "^(TestRunTwiceAndChange|TestStopSignal|TestCallersCgroup)$/^(embedded)?$", plain},
		{"./hack/e2e", "^(TestDiskPressure|TestMemoryPressure)$", []string{job.Plain}},
		{"./runonce/cmd", "^TestEviction$/^embedded$", []string{job.Plain}},
		{"./hack/e2e", "^TestCgroupDriver$/^embedded$", booted},
		{"./hack/e2e", "^TestCallerIsStopped$", booted},
		{"./hack/e2e", "^(TestUnits|TestShutdownUnit|TestComputeEngine)$", []string{job.SystemdV2}},
		{"./hack/e2e", "^(TestInPrivilegedContainer|TestInUnprivilegedContainer|TestContainerIsKilled)$", []string{job.Plain}},
		{"./runtime/network", "^TestHostPortSCTP$", plain},
		{"./runtime/service/rules", "^TestSCTP$", plain},
		{"./hack/vm/debian", "^TestArchive$", []string{job.ARM64}},
		{"./runonce/cmd", "^TestStoriesOnEmbedded$/^(" + stories + ")$", plain},
	}
}

// kernelStories are those for which the kernel and its cgroups matter: all take long in an emulated machine. own-users is not one of them, since the machine's root is a tmpfs, which
// Linux 6.1 cannot mount with mapped users. Of Services, one story shows that this kernel has what they need.
const kernelStories = "exec|happy|ipv6|limits|mount-propagation|oom|pod-level|privileges|read-only-volume|runtime-class|seccomp-missing|" +
	"service-traffic|shared-processes|top|users|volumes"

// moreStories start containers in many ways.
const moreStories = "attach|cp|crash-then-success|critical-preempts|died-unseen|down-timeout|earlier-run|ends|env|host|host-path|host-port|" +
	"init-then-restart|interrupted|job-backoff|logs|pod-security|poststart|projected|run-twice|several-networks|sidecars|stdin-and-tty|" +
	"stop-signal|stopped-halfway|too-big"

func main() {
	limit := flag.Duration("timeout", 90*time.Minute, "time limit for everything")
	memory := flag.Int("memory", 3072, "memory of each machine in MiB")
	machines := flag.String("machine", "", "comma-separated machines to run in: "+strings.Join(names(kinds()), ",")+" (default all but arm64, or plain if suites are given)")
	all := flag.Bool("all", false, "run more stories, in about twice the time")
	flag.Parse()
	chosen := suites(*all)
	todo, err := choose(*machines, chosen, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the tests did not finish within %s", *limit))
	code, err := run(ctx, todo, *memory)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// work is the suites to run in one machine.
type work struct {
	kind   kind
	suites []suite
}

// choose returns the work for each machine. machines is a comma-separated list of names and
// args are suites to run instead of the chosen ones; either may be empty.
func choose(machines string, chosen []suite, args []string) ([]work, error) {
	in := names(slices.DeleteFunc(kinds(), func(k kind) bool { return k.chosen }))
	if len(args) > 0 {
		in = []string{job.Plain}
	}
	if machines != "" {
		in = strings.Split(machines, ",")
	}
	for _, name := range in {
		if !slices.Contains(names(kinds()), name) && (machines != job.Debian || len(args) > 0) {
			return nil, fmt.Errorf("unknown machine %q: must be one of %s", name, strings.Join(names(kinds()), ", "))
		}
	}
	if len(args) > 0 {
		chosen = nil
	}
	for _, a := range args {
		dir, tests, _ := strings.Cut(a, "=")
		chosen = append(chosen, suite{dir, tests, in})
	}
	if machines == job.Debian && len(args) == 0 {
		return []work{{kind: kind{name: job.Debian}}}, nil
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

// run runs the suites in one machine after the other, each with that much memory in MiB, and
// returns the exit code: 0 if all tests passed in all machines.
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
	unpacked := filepath.Join(root, ".cache", "vm")
	b := builder{root: root, tmp: tmp, vm: unpacked, kernel: unpacked}
	code := 0
	var errs []error
	for _, t := range todo {
		c, err := b.runIn(ctx, t, memory)
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

// runIn runs the suites of one machine and returns its exit code.
func (b builder) runIn(ctx context.Context, t work, memory int) (int, error) {
	if t.kind.name == job.Debian {
		m, err := b.debian(ctx, memory)
		if err != nil {
			return 0, err
		}
		return m.report(ctx)
	}
	if t.kind.name == job.ARM64 {
		var err error
		if b, err = b.forARM64(ctx); err != nil {
			return 0, err
		}
	}
	initrd, err := b.initrd(ctx, t.kind, t.suites)
	if err != nil {
		return 0, err
	}
	m, err := b.machine(t.kind, initrd, memory)
	if err != nil {
		return 0, err
	}
	return m.report(ctx)
}

// report runs the machine, prints its output and returns its exit code.
func (m machine) report(ctx context.Context) (int, error) {
	fmt.Println("vm: starting machine", m.name)
	start := time.Now()
	var code *int
	err := m.run(ctx, func(r io.Reader) error {
		var err error
		code, err = relay(r, os.Stdout)
		return err
	})
	if code == nil {
		err = errors.Join(context.Cause(ctx), err, errors.New("the machine ended without a result"), m.consoleError())
	}
	if err != nil || code == nil {
		return 0, err
	}
	fmt.Printf("vm: machine %s ended with %d after %.1fs\n", m.name, *code, time.Since(start).Seconds())
	return *code, nil
}

// noTests is the message of a test program without matching tests.
const noTests = "testing: warning: no tests to run"

// relay copies the machine's output and returns the exit code at its end, or nil if there is
// none. A suite without matching tests is a failure, since they must have been renamed.
func relay(r io.Reader, w io.Writer) (*int, error) {
	var code *int
	empty := false
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		empty = empty || line == noTests
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
