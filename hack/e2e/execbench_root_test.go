package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/podman"
	"github.com/runonce/runonce/internal/testing/testcluster"
)

// executor runs a command that does nothing in a container.
type executor struct {
	name string
	args func(n int) []string // n is how often it was run before
	env  []string
}

func (e executor) run(b *testing.B, n int) time.Duration {
	b.Helper()
	args := append(e.args(n), "/bin/box", "exit", "0")
	cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), e.env...)
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return time.Since(begin)
}

// always is a command line that is the same each time.
func always(args ...string) func(int) []string {
	return func(int) []string { return args[:len(args):len(args)] }
}

// BenchmarkExec measures a command that does nothing, by runonce and by what else is installed. They take turns, and it
// prints how many times as long as "ctr task exec" on a daemon each takes.
func BenchmarkExec(b *testing.B) {
	served := newBox(b, daemon.Serve(b, daemon.Current).Socket)
	embedded := newBox(b, "")
	embedded.sleeper(b)
	all := []executor{served.ctr(b), embedded.executor(b, "runonce-embedded"), served.executor(b, "runonce-daemon")}
	all = append(all, podmanExecutor(b, embedded.dir)...)
	if os.Getenv("RUNONCE_TEST_CLUSTER") != "" {
		all = append(all, clusterExecutors(b)...)
	}
	total := make([]time.Duration, len(all))
	for n := 0; b.Loop(); n++ {
		for i := range all {
			e := (i + n) % len(all) // none is always the first one
			total[e] += all[e].run(b, n)
		}
	}
	b.ReportMetric(0, "ns/op") // of all together
	for i, e := range all {
		b.ReportMetric(float64(total[i].Microseconds())/1000/float64(b.N), "ms-"+e.name)
		b.ReportMetric(float64(total[i])/float64(total[0]), "x-"+e.name)
	}
}

// executor enters the container of a sleeper.
func (b *box) executor(t testing.TB, name string) executor {
	t.Helper()
	return executor{name: name, args: always(b.command(t, "exec", "web", "--").Args...)}
}

// ctr makes a container on the daemon of the box, and enters that.
func (b *box) ctr(t testing.TB) executor {
	t.Helper()
	task := b.sleeper(t)
	args := []string{filepath.Join(daemon.Programs(t, daemon.Debian), "ctr"), "--address", b.address, "--namespace", filepath.Base(b.dir), "task", "exec", "--exec-id"}
	return executor{name: "ctr", args: func(n int) []string { return append(args[:len(args):len(args)], fmt.Sprint("bench-", n), task) }}
}

// podmanExecutor returns none if podman is not installed.
func podmanExecutor(b *testing.B, dir string) []executor {
	b.Helper()
	p, err := podman.Find(filepath.Join(b.TempDir(), "podman"), filepath.Join(dir, "podman"))
	if errors.Is(err, podman.ErrNotInstalled) {
		return nil
	}
	if err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) {
		all := p.Args(args...)
		cmd := exec.CommandContext(context.WithoutCancel(b.Context()), all[0], all[1:]...)
		cmd.Env = append(os.Environ(), p.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Errorf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	archives, err := images()
	if err != nil {
		b.Fatal(err)
	}
	run("load", "-i", filepath.Join(archives, "box.tar"))
	run("run", "-d", "--name", "web", "--network", "none", "localhost/box:1", "sleep")
	b.Cleanup(func() { run("rm", "-f", "-t", "0", "web") })
	return []executor{{name: "podman", args: always(p.Args("exec", "web")...), env: p.Env}}
}

// clusterExecutors start a cluster with one node and a pod. kubectl and crictl are used if they are installed.
func clusterExecutors(b *testing.B) []executor {
	b.Helper()
	c := testcluster.Serve(b)
	if err := c.StartNode(b.Context()); err != nil {
		b.Fatal(err)
	}
	config, err := c.Kubeconfig(testcluster.Admin)
	if err != nil {
		b.Fatal(err)
	}
	path, err := program()
	if err != nil {
		b.Fatal(err)
	}
	out, err := exec.CommandContext(b.Context(), path, "run", "--kubeconfig", config, "--until", "ready", "-o", "json", directory(b, pod("web", "Always", "sleep"))).Output()

	var report struct {
		Results []struct{ Status v1.PodStatus }
	}
	if err := errors.Join(err, json.Unmarshal(out, &report)); err != nil {
		b.Fatal(err)
	}
	_, id, _ := strings.Cut(report.Results[0].Status.ContainerStatuses[0].ContainerID, "://")
	all := []executor{{name: "runonce-cluster", args: always(path, "exec", "web", "--kubeconfig", config, "--")}}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		all = append(all, executor{name: "kubectl", args: always(kubectl, "--kubeconfig", config, "exec", "web", "--")})
	}
	if crictl, err := exec.LookPath("crictl"); err == nil {
		all = append(all, executor{name: "crictl", args: always(crictl, "--runtime-endpoint", "unix://"+c.Socket(), "exec", id)})
	}
	return all
}
