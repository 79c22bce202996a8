package task

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryPath(t *testing.T) {
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
		if path, v2 := memoryPath(tc.text); path != tc.path || v2 != tc.v2 {
			t.Errorf("%q: %q, %v", tc.text, path, v2)
		}
	}
}

func TestCounter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"low 0\nhigh 0\nmax 8\noom 2\noom_kill 1\noom_group_kill 0\n": 1,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 12\n":              12,
		"oom_kill_disable 0\nunder_oom 0\n":                           0,
		"":                                                            0,
	} {
		if got := counter(text, "oom_kill"); got != want {
			t.Errorf("%q: %d", text, got)
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

func TestFindCgroup(t *testing.T) {
	t.Parallel()
	c, err := findCgroup(os.Getpid())
	if err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	found := false
	for _, pid := range c.pids() {
		found = found || pid == os.Getpid()
	}
	if !found {
		t.Errorf("this process is not in %+v", c)
	}
}
