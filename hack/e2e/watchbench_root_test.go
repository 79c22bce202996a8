package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/bench/cputime"
	"github.com/runonce/runonce/hack/bench/memory"
	"github.com/runonce/runonce/internal/testing/testcluster"
)

const (
	// idle is how long the benchmarks look at pods that do nothing.
	idle = time.Minute
	// settled is how long after their start.
	settled = 30 * time.Second
	// manyPods is the capacity of a machine for them.
	manyPods = "cpu=8,memory=16Gi,pods=1000"
)

// BenchmarkWatch measures what it costs to keep idle pods that are probed every ten seconds: a kubelet with its containerd
// and shims, and "runonce watch" with its shims. It prints the milliseconds of CPU time per second, the MiB of memory other
// than pages of files, and how many times as much as the kubelet runonce needs. RUNONCE_BENCH_PODS says how many pods.
func BenchmarkWatch(b *testing.B) {
	dir := directory(b, probedPods(benchPods(b)))
	var kubelet cost
	b.Run("kubelet", func(b *testing.B) {
		kubelet = watchByKubelet(b, dir)
		kubelet.report(b)
	})
	b.Run("runonce", func(b *testing.B) {
		c := watchByRunonce(b, dir)
		c.report(b)
		b.ReportMetric(float64(c.cpu)/float64(kubelet.cpu), "x-cpu")
		b.ReportMetric(float64(c.memory)/float64(kubelet.memory), "x-memory")
	})
}

// BenchmarkWait measures what a run costs that waits for the end of pods: the milliseconds of CPU time per second.
func BenchmarkWait(b *testing.B) {
	n := benchPods(b)
	var pods []string
	for i := range n {
		pods = append(pods, pod(fmt.Sprintf("p%d", i), "Never", "sleep"))
	}
	box := newBox(b, "")
	args := box.upArgs(b, directory(b, pods...), "--capacity", manyPods, "--until", "completed")
	run := box.command(b, "run", args...)
	if err := run.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = run.Process.Kill(), run.Wait() }()
	box.awaitPods(b, n)
	time.Sleep(settled)
	var c cost
	for b.Loop() {
		c = measureIdle(b, box.dir, "runonce-e2e")
	}
	c.report(b)
}

// benchPods is how many pods RUNONCE_BENCH_PODS asks for.
func benchPods(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("RUNONCE_BENCH_PODS"), "100"))
	if err != nil {
		b.Fatalf("RUNONCE_BENCH_PODS: %v", err)
	}
	return n
}

// probedPods returns pods that each listen on a port of the machine's.
func probedPods(n int) string {
	const first = 21000
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Pod
metadata: {name: web-%d}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/box:1
    args: [web, -addr, ":%d", -dir, /]
    readinessProbe: {httpGet: {path: /readyz, port: %[2]d}, periodSeconds: 10}
    livenessProbe: {httpGet: {path: /livez, port: %[2]d}, periodSeconds: 10}
`, i, first+i)
	}
	return all.String()
}

// cost is what processes use.
type cost struct {
	cpu    time.Duration
	memory int64
}

func (c cost) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(c.cpu.Seconds()*1000/idle.Seconds(), "ms/s")
	b.ReportMetric(float64(c.memory)/(1<<20), "MiB")
}

// watchByKubelet measures the node of a cluster.
func watchByKubelet(b *testing.B, dir string) (c cost) {
	b.Helper()
	cluster := testcluster.Serve(b)
	if err := cluster.StartNode(b.Context()); err != nil {
		b.Fatal(err)
	}
	config, err := cluster.Kubeconfig(testcluster.Admin)
	if err != nil {
		b.Fatal(err)
	}
	path, err := program()
	if err != nil {
		b.Fatal(err)
	}
	do := func(args ...string) {
		if out, err := exec.CommandContext(b.Context(), path, append(args, "--kubeconfig", config, dir)...).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	do("run", "--until", "ready")
	time.Sleep(settled)
	for b.Loop() {
		c = measureIdle(b, cluster.Dir, "kubelet", "containerd", "containerd-shim-runc-v2")
	}
	do("down")
	return c
}

// watchByRunonce measures a watch.
func watchByRunonce(b *testing.B, dir string) (c cost) {
	b.Helper()
	box := newBox(b, "")
	args := box.upArgs(b, dir, "--capacity", manyPods)
	if r := box.run(b, "run", append(args, "--until", "ready")...); r.code != 0 {
		b.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	watch := box.command(b, "watch", "--capacity", manyPods, dir)
	if err := watch.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(settled)
	for b.Loop() {
		c = measureIdle(b, box.dir, "runonce-e2e", "runonce-shim")
	}
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		b.Error(err)
	}
	_ = watch.Wait() // it says that it was interrupted
	return c
}

// measureIdle measures, while pods are idle, the programs of those names whose command lines have the directory.
func measureIdle(b *testing.B, dir string, programs ...string) cost {
	b.Helper()
	before := usage(b, dir, programs)
	time.Sleep(idle)
	after := usage(b, dir, programs)
	return cost{after.cpu - before.cpu, after.memory}
}

func usage(b *testing.B, dir string, programs []string) (all cost) {
	b.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	found := 0
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		program, _, _ := bytes.Cut(line, []byte{0})
		if !slices.Contains(programs, filepath.Base(string(program))) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			b.Fatal(err)
		}
		cpu, err := cputime.Of(pid)
		if err != nil {
			b.Fatal(err)
		}
		all.cpu += cpu
		all.memory += memory.Of(pid)
		found++
	}
	b.Logf("%d processes", found)
	return all
}
