package task

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

func TestCgroupPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, path string
		v2         bool
	}{
		{"9:name=systemd:/x\n4:memory:/a/b:c\n0::/u\n", "/a/b:c", false},
		{"5:cpu,memory,pids:/a\n", "/a", false},
		{"0::/u\n1:name=systemd:/x\n", "/u", true},
		{"", "", false},
		{"rubbish\n3:hugememory:/no\n", "", false},
	} {
		if path, v2 := cgroupPath(tc.text, "memory"); path != tc.path || v2 != tc.v2 {
			t.Errorf("%q: %q, %v", tc.text, path, v2)
		}
	}
}

// TestLook: each time that memory runs out is told once, also when nobody has looked before the
// end.
func TestLook(t *testing.T) {
	t.Parallel()
	told := 0
	w := &oomWatch{cgroup: cgroup{t.TempDir(), true}, tell: func() { told++ }}
	for _, tc := range []struct {
		events string
		told   int
		ran    bool
	}{{"oom_kill 0\n", 0, false}, {"oom_kill 2\n", 1, true}, {"oom_kill 2\n", 1, true}, {"oom_kill 3\n", 2, true}} {
		if err := os.WriteFile(filepath.Join(w.dir, "memory.events"), []byte(tc.events), 0o600); err != nil {
			t.Fatal(err)
		}
		if ran := w.look(); ran != tc.ran || told != tc.told {
			t.Errorf("%q: %v, told %d times", tc.events, ran, told)
		}
	}
	none := watchOOM(1<<30, func() { t.Error("told") })
	if none.look() || len(none.pids()) > 0 {
		t.Error("a process that does not exist")
	}
	none.stop()
}

// TestStartError: whoever waits to be started may be killed for want of memory.
func TestStartError(t *testing.T) {
	t.Parallel()
	for events, want := range map[string]string{
		"oom_kill 0\n": "OCI runtime start failed: the cause",
		"oom_kill 1\n": "OCI runtime start failed: container init was OOM-killed (memory limit too low?)",
	} {
		c := &container{oom: &oomWatch{cgroup: cgroup{t.TempDir(), true}, tell: func() {}}}
		if err := os.WriteFile(filepath.Join(c.oom.dir, "memory.events"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.startError(errors.New("the cause")); err.Error() != want {
			t.Errorf("%q", err)
		}
	}
}

// TestKilledBeforeItsStart: a container whose first process has ended cannot be started any more.
func TestKilledBeforeItsStart(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.must("Create", s.request("a", "exit 0"))
	id := &ttrpc.Request{ID: "a"}
	s.must("Kill", &ttrpc.KillRequest{Request: *id, Signal: 9})
	s.wait(id)
	if _, err := s.call(t.Context(), "Start", id); err == nil || !strings.Contains(err.Error(), "OCI runtime start failed: cannot start a container that has stopped") {
		t.Errorf("%v", err)
	}
	s.must("Delete", id)
}

func TestFindCgroup(t *testing.T) {
	t.Parallel()
	c, err := findCgroup(os.Getpid())
	if err != nil {
		roottest.Lacks(t, "cgroups: %v", err)
	}
	found := false
	for _, pid := range c.pids() {
		found = found || pid == os.Getpid()
	}
	if !found {
		t.Errorf("this process is not in %+v", c)
	}
}

// TestMetrics: what a container uses is read from the files of each version of cgroups.
func TestMetrics(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{
		"pids/a/pids.current": "3\n", "cpuacct/a/cpuacct.usage": "5000\n", "memory/a/memory.usage_in_bytes": "4096\n",
		"u/pids.current": "4\n", "u/cpu.stat": "usage_usec 6\nuser_usec 1\n", "u/memory.current": "8192\n",
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		in   cgroup
		want ttrpc.Metrics
	}{
		{cgroup{filepath.Join(root, "memory", "a"), false}, ttrpc.Metrics{PIDs: 3, CPU: 5000, Memory: 4096}},
		{cgroup{filepath.Join(root, "u"), true}, ttrpc.Metrics{V2: true, PIDs: 4, CPU: 6, Memory: 8192}},
	} {
		if got := tc.in.metrics(); *got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.in.dir, *got, tc.want)
		}
	}
}
