package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/service/rules"
)

// kernel is one in memory.
type kernel struct {
	mu      sync.Mutex
	table   *rules.Table
	applied int
	err     error
	takes   time.Duration
}

func (k *kernel) Apply(_ context.Context, t rules.Table) error {
	time.Sleep(k.takes)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied++
	k.table = &t
	return k.err
}

func (k *kernel) Present(string) (bool, error) { return k.table != nil, nil }

func (k *kernel) Remove(context.Context, string) error {
	k.table = nil
	return nil
}

// endpoints describes the rules: "IP:port -> endpoints".
func (k *kernel) endpoints() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table == nil {
		return "no rules"
	}
	var all []string
	for _, p := range k.table.Ports {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %v", p.Name, p.Endpoints)))
	}
	return strings.Join(all, " ")
}

// world is a root with a keeper.
type world struct {
	*Keeper
	kernel  *kernel
	records *record.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return openWorld(t.TempDir(), &kernel{})
}

func openWorld(root string, k *kernel) *world {
	w := &world{kernel: k, records: record.Open(root, filepath.Join(root, "state"))}
	w.Keeper = New(Options{
		Records: w.records, Kernel: k, Table: "t", HostIPs: []string{"192.0.2.1"}, Log: slog.New(slog.DiscardHandler),
		Families:  []v1.IPFamily{v1.IPv4Protocol},
		HostsFile: func(uid types.UID) string { return filepath.Join(w.records.Dir(uid), "hosts") },
		FreeRange: func(v1.IPFamily) (netip.Prefix, error) { return netip.MustParsePrefix("10.1.0.0/24"), nil },
		LookUp: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name != "db.example.com" {
				return nil, errors.New("no such host")
			}
			return parse([]string{"192.0.2.7"}), nil
		},
	})
	return w
}

// start records a pod with an address and a hosts file.
func (w *world) start(t testing.TB, m member) {
	t.Helper()
	m.pod.UID = types.UID(m.pod.Name)
	_, err := w.records.Update(m.pod.UID, func(r *record.Pod) error {
		r.Start(m.pod)
		r.Sandbox = &engine.Sandbox{BootID: process.BootID()}
		for _, ip := range m.ips {
			r.Sandbox.IPs = append(r.Sandbox.IPs, ip.String())
		}
		r.Ready = m.ready
		return nil
	})
	if err == nil {
		err = os.WriteFile(w.o.HostsFile(m.pod.UID), []byte("127.0.0.1\tlocalhost\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) hosts(t *testing.T) string {
	t.Helper()
	return hostsIn(t, w.o.HostsFile("web"))
}

func hostsIn(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeeper follows a Service from its definition to its removal.
func TestKeeper(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	expect := func(when, want string) {
		t.Helper()
		if got := w.kernel.endpoints(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	must(t, w.updateAll(ctx))
	expect("without a Service", "no rules")
	must(t, w.Define(ctx, []*v1.Service{newService("db")}, none, nil))
	expect("before its pods", "default/db:8080 []")
	w.start(t, newMember("db-0", "db", true, "10.2.0.2"))
	w.start(t, newMember("web", "web", true, "10.2.0.3"))
	must(t, w.updateAll(ctx))
	expect("with a pod", "default/db:8080 [10.2.0.2:8080]")
	hosts := w.hosts(t)
	if !strings.Contains(hosts, "10.1.0.52\tdb.default.svc.cluster.local\tdb.default.svc\tdb.default\tdb\n10.2.0.2\tdb-0.default\tdb-0\n") {
		t.Errorf("hosts file: %s", hosts)
	}
	before := w.kernel.applied
	must(t, w.updateAll(ctx))
	if w.kernel.applied != before {
		t.Error("nothing has changed, and the rules were applied again")
	}
	must(t, w.records.Stop("db-0"))
	must(t, w.updateAll(ctx))
	expect("when the pod was told to stop", "default/db:8080 []")
	removed, err := w.Remove(ctx, func(*v1.Service) bool { return true })
	must(t, err)
	if fmt.Sprint(removed) != "[default/db]" {
		t.Errorf("removed %v", removed)
	}
	expect("after the Service", "no rules")
	if hosts := w.hosts(t); strings.Contains(hosts, "svc") {
		t.Errorf("hosts file: %s", hosts)
	}
	if _, err := os.Stat(filepath.Join(w.root(), stateFile)); !os.IsNotExist(err) {
		t.Errorf("the file of Services is left: %v", err)
	}
}

// TestInvalid: what is wrong with the Services is told from what is wrong with the machine, and changes nothing.
func TestInvalid(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	must(t, w.Define(ctx, []*v1.Service{newService("db", withIPs("10.9.9.9"))}, none, nil))
	var invalid *InvalidError
	if err := w.Define(ctx, []*v1.Service{newService("new", withIPs("10.9.9.9"))}, none, nil); !errors.As(err, &invalid) {
		t.Errorf("an address that is taken: %v", err)
	}
	if services, err := w.Services(); err != nil || len(services) != 1 {
		t.Errorf("Services %v, %v", services, err)
	}
	w.kernel.err = failure.Permanentf("the kernel has no nftables")
	if err := w.Define(ctx, []*v1.Service{newService("new")}, none, nil); err == nil || errors.As(err, &invalid) {
		t.Errorf("a kernel without nftables: %v", err)
	}
}

// TestOtherProcess: another process finds the Services with their addresses, and a failed one continues where it ended.
func TestOtherProcess(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	w.kernel.err = errors.New("no such thing")
	if err := w.Define(ctx, []*v1.Service{newService("db")}, none, nil); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Fatalf("no error of the kernel: %v", err)
	}
	w.kernel.err = nil
	other := openWorld(w.root(), w.kernel)
	services, err := other.Services()
	must(t, err)
	if len(services) != 1 || services[0].Spec.ClusterIP != "10.1.0.52" {
		t.Fatalf("the other process sees %v", services)
	}
	_, err = other.Remove(ctx, func(*v1.Service) bool { return true })
	must(t, err)
	if got := w.kernel.endpoints(); got != "no rules" {
		t.Errorf("left: %s", got)
	}
	if all, err := w.Services(); err != nil || len(all) > 0 {
		t.Errorf("the first process still sees %v, %v", all, err)
	}
}

// TestHostsFileIsNotReplaced: it is mounted in running containers.
func TestHostsFileIsNotReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, newMember("web", "web", true, "10.2.0.3"))
	before, err := os.Stat(w.o.HostsFile("web"))
	must(t, err)
	must(t, w.Define(t.Context(), []*v1.Service{newService("db")}, none, nil))
	after, err := os.Stat(w.o.HostsFile("web"))
	must(t, err)
	if !os.SameFile(before, after) || !strings.Contains(w.hosts(t), "\tdb\n") {
		t.Errorf("replaced, or not changed: %s", w.hosts(t))
	}
}

func TestExternalName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	external := func(target string) func(*v1.Service) {
		return func(svc *v1.Service) {
			svc.Spec = v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: target}
		}
	}
	must(t, w.Define(t.Context(), []*v1.Service{newService("db", external("db.example.com")), newService("lost", external("lost.example.com"))}, none, nil))
	pod := newMember("web", "web", true, "10.2.0.3").pod
	file, err := w.WithNames(pod, []byte("127.0.0.1\tlocalhost\n"))
	must(t, err)
	if s := string(file); !strings.Contains(s, "192.0.2.7\tdb.default.svc") || strings.Contains(s, "lost") {
		t.Errorf("hosts file: %s", s)
	}
	if got := w.kernel.endpoints(); got != "no rules" {
		t.Errorf("rules: %s", got)
	}
}

// TestShared: changes at the same time share a pass, and none is lost.
func TestShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := openWorld(dir, &kernel{takes: time.Second})
		must(t, w.Define(t.Context(), []*v1.Service{newService("db")}, none, nil))
		var all sync.WaitGroup
		for i := range 50 {
			w.start(t, newMember(fmt.Sprintf("db-%d", i), "db", true, fmt.Sprintf("10.2.0.%d", 2+i)))
			all.Go(func() {
				if err := w.updateAll(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(w.kernel.table.Ports[0].Endpoints); n != 50 || w.kernel.applied > 4 {
			t.Errorf("%d endpoints after the rules were applied %d times", n, w.kernel.applied)
		}
	})
}

// TestDeletedRules: somebody else has deleted all rules of the kernel.
func TestDeletedRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := openWorld(dir, &kernel{})
		must(t, w.Define(t.Context(), []*v1.Service{newService("db")}, none, nil))
		w.kernel.table = nil
		must(t, w.Keep(t.Context()))
		if w.kernel.table != nil {
			t.Error("they were looked for at once")
		}
		time.Sleep(recheck + time.Second)
		must(t, w.Keep(t.Context()))
		if w.kernel.table == nil {
			t.Error("they were not restored")
		}
	})
}

// TestDelayedNames: pods that no Service has change the hosts files together, others at once.
func TestDelayedNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, ctx := openWorld(dir, &kernel{}), t.Context()
		must(t, w.Define(ctx, []*v1.Service{newService("db")}, none, nil))
		web := newMember("web", "web", true, "10.2.0.3")
		w.start(t, web)
		expect := func(when, want string, has bool) {
			t.Helper()
			if hosts := w.hosts(t); strings.Contains(hosts, want) != has {
				t.Errorf("%s: hosts file %s, which should contain %q: %t", when, hosts, want, has)
			}
		}
		job := newMember("job", "job", true, "10.2.0.4")
		w.start(t, job)
		must(t, w.Update(ctx, job.pod))
		expect("at once", "job", false)
		time.Sleep(namesDelay)
		synctest.Wait()
		expect("a moment later", "10.2.0.4\tjob.default\tjob\n", true)

		must(t, w.records.Remove("job"))
		must(t, w.Update(ctx, job.pod))
		expect("gone", "job", true)
		w.Flush()
		expect("at the end", "job", false)

		db := newMember("db-0", "db", true, "10.2.0.2")
		w.start(t, db)
		must(t, w.Update(ctx, db.pod))
		expect("of a Service", "10.2.0.2\tdb-0.default\tdb-0\n", true)
	})
}

// TestDelayedNamesOfMany: the longer it takes to change all hosts files, the less often that is done.
func TestDelayedNamesOfMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, ctx := openWorld(dir, &kernel{}), t.Context()
		fast := w.o.HostsFile
		w.o.HostsFile = func(uid types.UID) string {
			time.Sleep(time.Second / 2)
			return fast(uid)
		}
		come := func(name, ip string, after time.Duration) {
			t.Helper()
			pod := newMember(name, name, true, ip)
			w.start(t, pod)
			must(t, w.Update(ctx, pod.pod))
			before := time.Now()
			for !strings.Contains(hostsIn(t, fast("web")), ip) {
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(before); took < after || took > after+2*time.Second {
				t.Errorf("pod %s has its name after %s, want %s", name, took, after)
			}
			synctest.Wait()
		}
		w.start(t, newMember("web", "web", true, "10.2.0.3"))
		come("a", "10.2.0.4", time.Second)
		time.Sleep(time.Minute)
		come("b", "10.2.0.5", delayFactor*time.Second)
	})
}

// BenchmarkNames is the work for each of many pods that come one after another.
func BenchmarkNames(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%d pods", n), func(b *testing.B) {
			w := openWorld(b.TempDir(), &kernel{})
			for i := range n {
				w.start(b, newMember(fmt.Sprintf("p%d", i), "web", true, fmt.Sprintf("10.2.%d.%d", i/250, i%250+1)))
			}
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				w.start(b, newMember("p0", "web", true, fmt.Sprintf("10.3.0.%d", 1+i%250)))
				b.StartTimer()
				if err := w.update(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
