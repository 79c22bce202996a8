package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sleeper starts a process that lives as long as the test and returns its pid.
func sleeper(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}

func TestDetect(t *testing.T) {
	t.Parallel()
	m := func(fstype, point, options, vfs string) *mountinfo.Info {
		return &mountinfo.Info{FSType: fstype, Mountpoint: point, Options: options, VFSOptions: vfs}
	}
	tests := []struct {
		name        string
		mounts      []*mountinfo.Info
		controllers string
		want        Tree
		wantErr     string
	}{
		{
			name:        "v2",
			mounts:      []*mountinfo.Info{m("cgroup2", "/cg", "rw,nosuid", "rw,nsdelegate,memory_recursiveprot,favordynmods")},
			controllers: "cpu memory pids",
			want:        Tree{V2: true, Options: []string{"nsdelegate", "memory_recursiveprot"}, dirs: map[string]string{"cpu": "/cg", "memory": "/cg", "pids": "/cg"}},
		},
		{
			name: "v1",
			mounts: []*mountinfo.Info{
				m("tmpfs", "/cg", "ro", "ro"),
				m("cgroup", "/cg/cpu,cpuacct", "rw", "rw,cpu,cpuacct"),
				m("cgroup", "/cg/memory", "rw", "rw,memory"),
				m("cgroup", "/cg/systemd", "rw", "rw,name=systemd"),
			},
			want: Tree{dirs: map[string]string{
				"cpu": "/cg/cpu,cpuacct", "cpuacct": "/cg/cpu,cpuacct", "memory": "/cg/memory", "name=systemd": "/cg/systemd",
			}},
		},
		{
			name: "hybrid is v1",
			mounts: []*mountinfo.Info{
				m("cgroup", "/cg/cpu", "rw", "rw,cpu"), m("cgroup", "/cg/memory", "rw", "rw,memory"),
				m("cgroup2", "/cg/unified", "rw", "rw"),
			},
			controllers: "hugetlb",
			want:        Tree{dirs: map[string]string{"cpu": "/cg/cpu", "memory": "/cg/memory", "unified": "/cg/unified"}},
		},
		{
			name:    "none",
			wantErr: "controller cpu is not mounted below /cg",
		},
		{
			name:    "no memory",
			mounts:  []*mountinfo.Info{m("cgroup", "/cg/cpu", "rw", "rw,cpu")},
			wantErr: "controller memory is not mounted below /cg",
		},
		{
			name:        "v2 read-only",
			mounts:      []*mountinfo.Info{m("cgroup2", "/cg", "ro,nosuid", "rw")},
			controllers: "cpu memory",
			wantErr:     "controller cpu: /cg is mounted read-only",
		},
		{
			name: "a controller that is not needed read-only",
			mounts: []*mountinfo.Info{
				m("cgroup", "/cg/cpu", "rw", "rw,cpu"), m("cgroup", "/cg/memory", "rw", "rw,memory"), m("cgroup", "/cg/pids", "ro", "rw,pids"),
			},
			want: Tree{dirs: map[string]string{"cpu": "/cg/cpu", "memory": "/cg/memory"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			read := func(string) ([]byte, error) { return []byte(tt.controllers + "\n"), nil }
			got, err := detect(tt.mounts, "/cg", read)
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Tree{}), cmpopts.IgnoreFields(Tree{}, "made", "shares")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	guaranteed := testPod("g", list("1500m", "1Gi"), list("1500m", "1Gi"))
	huge := testPod("h", list("1", "1Gi"), list("1", "1Gi"))
	huge.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = resource.MustParse("10Mi")
	huge.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("10Mi")
	overhead := testPod("o", list("1", "1Gi"), list("1", "1Gi"))
	overhead.Spec.Overhead = list("100m", "24Mi")
	all := map[string]string{"cpu": "/cg", "memory": "/cg", "pids": "/cg", "hugetlb": "/cg"}
	tests := []struct {
		name string
		tree Tree
		pod  *v1.Pod
		at   location
		want []string
	}{
		{"v1", Tree{dirs: all}, guaranteed, location{}, []string{
			"cpu.shares=1536", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000", "memory.limit_in_bytes=1073741824",
		}},
		{"v2", Tree{V2: true, dirs: all, pidsLimit: 100}, guaranteed, location{}, []string{
			"cpu.weight=138", "cpu.max=150000 100000", "memory.max=1073741824", "pids.max=100",
		}},
		{"huge pages v1", Tree{dirs: all, HugePages: []int64{2 << 20, 1 << 30}}, huge, location{}, []string{
			"cpu.shares=1024", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=100000", "memory.limit_in_bytes=1073741824",
			"hugetlb.2MB.limit_in_bytes=10485760", "hugetlb.1GB.limit_in_bytes=0",
		}},
		{"huge pages v2 without the controller", Tree{V2: true, dirs: map[string]string{}, HugePages: []int64{2 << 20}}, huge, location{}, []string{
			"cpu.weight=100", "cpu.max=100000 100000", "memory.max=1073741824",
		}},
		{"overhead", Tree{dirs: all}, overhead, location{}, []string{
			"cpu.shares=1126", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=110000", "memory.limit_in_bytes=1098907648",
		}},
		{"slices have quotas of whole percents", Tree{dirs: all}, testPod("p", list("15m", ""), list("15m", "")), location{slice: "p.slice"}, []string{
			"cpu.shares=15", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=2000",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range tt.tree.settings(tt.pod, tt.at) {
				got = append(got, s.file+"="+s.value)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// On v2 a cgroup has a controller only when it is enabled in every one above.
func TestDelegate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc dmem", "cgroup.subtree_control": "cpu",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Tree{V2: true}).delegate(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		t.Fatal(err)
	}
	// A plain file keeps the last write: a pod that is created meanwhile must not find a part.
	got := strings.Fields(string(data))
	for _, c := range []string{"+memory", "+hugetlb", "+pids"} {
		if !slices.Contains(got, c) {
			t.Errorf("subtree_control %q lacks %s", got, c)
		}
	}
	if slices.Contains(got, "+cpu") || slices.Contains(got, "+dmem") {
		t.Errorf("subtree_control %q", got)
	}
}

func TestEnsureSaysWhichHierarchyIsMissing(t *testing.T) {
	t.Parallel()
	tree := Tree{made: &sync.Map{}, dirs: map[string]string{"cpu": filepath.Join(t.TempDir(), "gone"), "memory": t.TempDir()}}
	_, err := tree.Ensure(t.Context(), testPod("x", nil, nil))
	want := fmt.Sprintf("creating cgroup /runonce/besteffort/podx: mkdir %s/runonce: no such file or directory", tree.dirs["cpu"])
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestParent(t *testing.T) {
	t.Parallel()
	for parent, want := range map[string]string{"": "/runonce/podx", "kubepods": "/kubepods/podx", "/a/b/": "/a/b/podx"} {
		tree := Tree{Parent: parent, dirs: map[string]string{"cpu": t.TempDir()}}
		got := tree.locate(testPod("x", list("1", "1Gi"), list("1", "1Gi"))).path
		if got != want {
			t.Errorf("parent %q: %s, want %s", parent, got, want)
		}
	}
}
