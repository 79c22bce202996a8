package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/bench/memory"
	"github.com/runonce/runonce/internal/testing/testcluster"
)

// idle is how long the benchmark looks at pods that do nothing.
const idle = 2 * time.Minute

// BenchmarkWatch measures what it costs to keep idle pods that are probed every ten seconds: a kubelet with its containerd
// and shims, and "runonce watch" with its shims. It prints the milliseconds of CPU time per second, the MiB of memory other
// than pages of files, and how many times as much as the kubelet runonce needs. RUNONCE_BENCH_PODS says how many pods.
func BenchmarkWatch(b *testing.B) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("RUNONCE_BENCH_PODS"), "100"))
	if err != nil {
		b.Fatal(err)
	}
	dir := directory(b, probedPods(n))
	kubelet, runonce := watchByKubelet(b, dir), watchByRunonce(b, dir)
	for b.Loop() { // all has been measured
	}
	b.ReportMetric(0, "ns/op")
	for _, m := range []struct {
		name string
		cost cost
	}{{"kubelet", kubelet}, {"runonce", runonce}} {
		b.ReportMetric(m.cost.cpu.Seconds()*1000/idle.Seconds(), "ms/s-"+m.name)
		b.ReportMetric(float64(m.cost.memory)/(1<<20), "MiB-"+m.name)
	}
	b.ReportMetric(float64(runonce.cpu)/float64(kubelet.cpu), "x-cpu")
	b.ReportMetric(float64(runonce.memory)/float64(kubelet.memory), "x-memory")
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

// watchByKubelet measures the node of a cluster.
func watchByKubelet(b *testing.B, dir string) (c cost) {
	b.Helper()
	b.Run("kubelet", func(b *testing.B) { // whose end is that of the cluster
		cluster := testcluster.Serve(b)
		if err := cluster.StartNode(b.Context()); err != nil {
			b.Fatal(err)
		}
		config, err := cluster.Kubeconfig(testcluster.Admin)
		if err != nil {
			b.Fatal(err)
		}
		box := newBox(b, "")
		if r := box.run(b, "run", "--kubeconfig", config, "--until", "ready", dir); r.code != 0 {
			b.Fatalf("exit code %d\n%s", r.code, r.stderr)
		}
		for b.Loop() {
			c = measureIdle(b, cluster.Dir, "kubelet", "containerd", "containerd-shim-runc-v2")
		}
	})
	return c
}

// watchByRunonce measures a watch.
func watchByRunonce(b *testing.B, dir string) (c cost) {
	b.Helper()
	b.Run("runonce", func(b *testing.B) {
		box := newBox(b, "")
		args := box.upArgs(b, dir, "--capacity", "cpu=8,memory=16Gi,pods=1000")
		if r := box.run(b, "run", append(args, "--until", "ready")...); r.code != 0 {
			b.Fatalf("exit code %d\n%s", r.code, r.stderr)
		}
		watch := box.command(b, "watch", "--capacity", "cpu=8,memory=16Gi,pods=1000", dir)
		var stderr bytes.Buffer
		watch.Stderr = &stderr
		if err := watch.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(30 * time.Second) // until it has seen all pods
		for b.Loop() {
			c = measureIdle(b, box.dir, "runonce-e2e", "runonce-shim")
		}
		if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
		if err := watch.Wait(); err != nil {
			b.Logf("watch: %v\n%s", err, stderr.String())
		}
	})
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
		pid := filepath.Base(filepath.Dir(file))
		if !slices.Contains(programs, filepath.Base(string(program))) {
			continue
		}
		cpu, err := cpuTime(pid)
		if err != nil {
			b.Fatal(err)
		}
		id, err := strconv.Atoi(pid)
		if err != nil {
			b.Fatal(err)
		}
		all.cpu += cpu
		all.memory += memory.Of(id)
		found++
	}
	b.Logf("%d processes", found)
	return all
}

// cpuTime returns what a process has used, in the kernel's ticks of 10 ms.
func cpuTime(pid string) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
