package network

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

// leases returns the addresses that are reserved.
func leases(t *testing.T, m *Manager) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"10.*", "fd*"} {
		files, err := filepath.Glob(filepath.Join(m.files.leases(), "*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return found
}

func withHostPort(t *testing.T, name string) *v1.Pod {
	t.Helper()
	port := freePort()
	return newPod(name, func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(port)}}
	})
}

// After a crash at any time Ensure makes the sandbox, and Remove leaves nothing.
func TestCrash(t *testing.T) {
	stages := map[string]func(t *testing.T, m *Manager, pod *v1.Pod){
		"pins only": func(t *testing.T, m *Manager, pod *v1.Pod) {
			if _, err := m.makeNamespaces(pod, "x"); err != nil {
				t.Fatal(err)
			}
		},
		"pins in part": func(t *testing.T, m *Manager, pod *v1.Pod) {
			dir := m.files.pins(string(pod.UID))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := namespaces.Make(dir, []namespaces.Kind{namespaces.IPC}, ""); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "net"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"recorded": func(t *testing.T, m *Manager, pod *v1.Pod) {
			text, err := json.Marshal(planned(t, m, pod))
			if err != nil {
				t.Fatal(err)
			}
			change(t, m, pod, func(r *record.Pod) { r.Attachment = text })
		},
		"attached": func(t *testing.T, m *Manager, pod *v1.Pod) {
			if _, err := attached(t, m, pod); err != nil {
				t.Fatal(err)
			}
		},
		"not yet on record": func(t *testing.T, m *Manager, pod *v1.Pod) {
			ensure(t, m, pod)
			change(t, m, pod, func(r *record.Pod) { r.Sandbox = nil })
		},
		"pins lost": func(t *testing.T, m *Manager, pod *v1.Pod) {
			ensure(t, m, pod)
			if err := namespaces.Remove(m.files.pins(string(pod.UID))); err != nil {
				t.Fatal(err)
			}
		},
		"one pin lost": func(t *testing.T, m *Manager, pod *v1.Pod) {
			sb := ensure(t, m, pod)
			if out, err := exec.CommandContext(t.Context(), "umount", sb.UTSNS).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		"removed in part": func(t *testing.T, m *Manager, pod *v1.Pod) {
			ensure(t, m, pod)
			// A failing plugin simulates a crash in the middle of Remove.
			broken := New(m.o)
			broken.o.CNIBinDirs = []string{t.TempDir()}
			if err := holding(broken).Remove(t.Context(), pod); err == nil {
				t.Fatal("Remove succeeded without plugins")
			}
			lock := lockOf(t, m, pod)
			defer lock.Release()
			r, err := m.o.Records.Load(pod.UID)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.detach(t.Context(), r, lock); err != nil {
				t.Fatal(err)
			}
		},
		"record in part": func(t *testing.T, m *Manager, pod *v1.Pod) {
			if _, err := m.makeNamespaces(pod, "x"); err != nil {
				t.Fatal(err)
			}
			dir := m.o.Records.Dir(pod.UID)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "pod.json.tmp"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, crash := range stages {
		t.Run(name+", then Ensure", func(t *testing.T) {
			m := newManager(t)
			pod := withHostPort(t, "a")
			crash(t, m, pod)
			next := New(m.o)
			serve(t, ensure(t, next, pod), "a")
			sb, err := next.Get(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, "", sb.IPs[0]+":80", "a")
			if got := leases(t, m); len(got) != 1 {
				t.Errorf("leases %q, want one", got)
			}
		})
		t.Run(name+", then Remove", func(t *testing.T) {
			m := newManager(t)
			pod := withHostPort(t, "a")
			crash(t, m, pod)
			if err := holding(New(m.o)).Remove(context.Background(), pod); err != nil {
				t.Fatal(err)
			}
			if got := leases(t, m); len(got) != 0 {
				t.Errorf("leases %q, want none", got)
			}
		})
	}
}

// change changes the pod's record without the Manager.
func change(t *testing.T, m *Manager, pod *v1.Pod, f func(*record.Pod)) {
	t.Helper()
	if err := m.update(pod, func(r *record.Pod) { f(r) }); err != nil {
		t.Fatal(err)
	}
}

func lockOf(t *testing.T, m *Manager, pod *v1.Pod) record.Lock {
	t.Helper()
	lock, err := m.o.Records.Lock(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func attached(t *testing.T, m *Manager, pod *v1.Pod) ([]networkStatus, error) {
	t.Helper()
	lock := lockOf(t, m, pod)
	defer lock.Release()
	return m.attach(t.Context(), pod, planned(t, m, pod), lock)
}

// planned pins the pod's namespaces and returns its planned attachment.
func planned(t *testing.T, m *Manager, pod *v1.Pod) *attachment {
	t.Helper()
	a, err := m.plan(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.makeNamespaces(pod, "x"); err != nil {
		t.Fatal(err)
	}
	return a
}

// A reboot removes the namespaces, the bridge and the rules, and maybe the state directory.
// Nothing of the pods before it may stay reserved.
func TestReboot(t *testing.T) {
	for _, tt := range []struct {
		name       string
		stateStays bool
	}{{"state on disk", true}, {"state in memory", false}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t)
			gone, back := withHostPort(t, "gone"), withHostPort(t, "back")
			ensure(t, m, gone)
			ensure(t, m, back)
			reboot(t, m, tt.stateStays)

			next := New(m.o)
			if _, err := next.Get(t.Context(), back); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Get: error %v, want fs.ErrNotExist", err)
			}
			serve(t, ensure(t, next, back), "back")
			sb, err := next.Get(t.Context(), back)
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, "", sb.IPs[0]+":80", "back")
			if got := leases(t, m); len(got) != 1 {
				t.Errorf("leases %q, want one", got)
			}
			records, err := m.attached()
			if err != nil {
				t.Fatal(err)
			}
			var uids []string
			for _, r := range records {
				uids = append(uids, string(r.Pod.UID))
			}
			if diff := cmp.Diff([]string{"uid-back"}, uids); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func reboot(t *testing.T, m *Manager, stateStays bool) {
	t.Helper()
	pods, err := os.ReadDir(filepath.Join(m.o.StateDir, "pods"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := namespaces.Remove(m.files.pins(p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"-t nat -F", "-t nat -X", "-F"} {
		if out, err := exec.CommandContext(t.Context(), "iptables", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("iptables %s: %v: %s", args, err, out)
		}
	}
	if err := netlink.LinkDel(bridgeOf(t, m)); err != nil {
		t.Fatal(err)
	}
	if !stateStays {
		if err := os.RemoveAll(m.o.StateDir); err != nil {
			t.Fatal(err)
		}
	}
}

// Two processes share a state directory, and others have one of their own.
func TestManyManagers(t *testing.T) {
	m, other := newManager(t), newManager(t)
	managers := []*Manager{m, New(m.o), New(m.o), other, New(other.o)}
	const each = 4
	errs := make(chan error, len(managers)*each)
	pods := map[*Manager][]*v1.Pod{}
	for i, mm := range managers {
		for j := range each {
			pods[mm] = append(pods[mm], newPod(string(rune('a'+i))+string(rune('a'+j))))
		}
	}
	run := func(f func(*Manager, *v1.Pod) error) {
		t.Helper()
		for mm, list := range pods {
			for _, p := range list {
				go func() { errs <- f(mm, p) }()
			}
		}
		for range len(managers) * each {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	run(func(mm *Manager, p *v1.Pod) error { _, err := holding(mm).Ensure(t.Context(), p); return err })
	if got := len(leases(t, m)); got != 3*each {
		t.Errorf("%d leases, want %d", got, 3*each)
	}
	run(func(mm *Manager, p *v1.Pod) error { return holding(mm).Remove(t.Context(), p) })
	for _, mm := range managers {
		if err := mm.Cleanup(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
