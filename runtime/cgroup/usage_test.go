package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podusage"
)

// hierarchy writes the files of cgroups and returns a tree that is mounted there.
func hierarchy(t *testing.T, v2 bool, files map[string]string) Tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(controller string) string {
		if v2 {
			return root
		}
		return filepath.Join(root, controller)
	}
	return Tree{V2: v2, dirs: map[string]string{"cpu": at("cpu,cpuacct"), "cpuacct": at("cpu,cpuacct"), "memory": at("memory")}}
}

// TestUsage: the files of both versions say the same. Containers are cgroups or scopes of systemd below that of the
// pod, and one that has just ended is left out.
func TestUsage(t *testing.T) {
	t.Parallel()
	const v1CPU, v1Memory = "cpu,cpuacct/runonce/besteffort/podx/", "memory/runonce/besteffort/podx/"
	const v2 = "runonce/besteffort/podx/"
	v1Stat := "cache 9\ninactive_file 1\nhierarchical_memory_limit 99\ntotal_cache 900\ntotal_inactive_file 300\n"
	v2Stat := "anon 700\nfile 900\ninactive_file 300\nactive_file 600\n"
	for name, tree := range map[string]Tree{
		"v1": hierarchy(t, false, map[string]string{
			v1CPU + "cpuacct.usage": "2500000000\n", v1Memory + "memory.usage_in_bytes": "1000\n", v1Memory + "memory.stat": v1Stat,
			v1CPU + "a/cpuacct.usage": "1500000000\n", v1Memory + "a/memory.usage_in_bytes": "400\n", v1Memory + "a/memory.stat": "total_inactive_file 500\n",
			v1CPU + "gone/x": "", // only in one hierarchy
		}),
		"v2": hierarchy(t, true, map[string]string{
			v2 + "cpu.stat": "usage_usec 2500000\nuser_usec 1\n", v2 + "memory.current": "1000\n", v2 + "memory.stat": v2Stat,
			v2 + "runonce-a.scope/cpu.stat": "usage_usec 1500000\n", v2 + "runonce-a.scope/memory.current": "400\n", v2 + "runonce-a.scope/memory.stat": "inactive_file 500\n",
			v2 + "gone/x": "",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, containers, err := tree.Usage(testPod("x", nil, nil), []string{"a", "gone", "never"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(podusage.Sample{CPU: 2500 * time.Millisecond, Memory: 1000, WorkingSet: 700}, pod); diff != "" {
				t.Error(diff)
			}
			// A cache that is larger than what is charged leaves nothing, and not a number below zero.
			if diff := cmp.Diff(map[string]podusage.Sample{"a": {CPU: 1500 * time.Millisecond, Memory: 400}}, containers); diff != "" {
				t.Error(diff)
			}
			used := 1.5
			if diff := cmp.Diff(map[string]podusage.Total{"a": {CPUSeconds: &used}}, tree.Totals(testPod("x", nil, nil), []string{"a", "gone", "never"})); diff != "" {
				t.Error(diff)
			}
			if _, _, err := tree.Usage(testPod("y", nil, nil), nil); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a pod without a cgroup: %v", err)
			}
		})
	}
}

// TestUsageOfOtherText: what is no number is an error that names the file.
func TestUsageOfOtherText(t *testing.T) {
	t.Parallel()
	const dir = "runonce/besteffort/podx/"
	for want, files := range map[string]map[string]string{
		"cpu.stat has no usage_usec": {"cpu.stat": "user_usec 1\n", "memory.current": "1", "memory.stat": "inactive_file 0\n"},
		"memory.current: ":           {"cpu.stat": "usage_usec 1\n", "memory.current": "max", "memory.stat": "inactive_file 0\n"},
		"memory.stat: inactive_file": {"cpu.stat": "usage_usec 1\n", "memory.current": "1", "memory.stat": "inactive_file -1\n"},
	} {
		in := map[string]string{}
		for name, text := range files {
			in[dir+name] = text
		}
		if _, _, err := hierarchy(t, true, in).Usage(testPod("x", nil, nil), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
