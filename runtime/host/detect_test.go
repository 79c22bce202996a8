package host

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/ocispec"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestDetect(t *testing.T) {
	t.Parallel()
	const all = "Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
	tests := []struct {
		name  string
		tree  cgroup.Tree
		files fstest.MapFS
		want  ocispec.Host
	}{
		{
			name: "few rights, cgroup v1",
			tree: cgroup.Tree{HugePages: []int64{2 << 20, 1 << 30}},
			files: fstest.MapFS{
				"proc/self/status":                                 file("CapEff:\t0000000000000003\nCapBnd:\t0000000000000401\n"),
				"proc/self/oom_score_adj":                          file("-200\n"),
				"sys/devices/system/cpu/cpu0/online":               file("1"),
				"sys/devices/system/cpu/cpu1/online":               file("1"),
				"sys/devices/system/cpu/cpufreq/x":                 file(""),
				"sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": file("0"),
			},
			want: ocispec.Host{
				Capabilities: []string{"CAP_CHOWN", "CAP_NET_BIND_SERVICE"}, MinOOMScoreAdj: -200, CPUs: 2,
				SwapLimit: true, HugePages: []int64{2 << 20, 1 << 30},
			},
		},
		{
			name: "cgroup v2", tree: cgroup.Tree{V2: true, Options: []string{"nsdelegate"}},
			files: fstest.MapFS{
				"proc/self/status":                             file(all),
				"sys/fs/cgroup/system.slice/memory.swap.max":   file("max"),
				"sys/devices/system/cpu/cpu0/topology/core_id": file("0"),
			},
			want: ocispec.Host{
				CgroupV2: true, CgroupOptions: []string{"nsdelegate"}, Capabilities: ocispec.AllCapabilities(), MinOOMScoreAdj: -1000, CPUs: 1, SwapLimit: true,
			},
		},
		{
			name: "cgroup v2 with no cgroup yet", tree: cgroup.Tree{V2: true},
			files: fstest.MapFS{
				"proc/self/status": file(all),
				"proc/swaps":       file("Filename"),
				"proc/cmdline":     file("quiet"),
			},
			want: ocispec.Host{CgroupV2: true, Capabilities: ocispec.AllCapabilities(), MinOOMScoreAdj: -1000, SwapLimit: true},
		},
		{
			name: "cgroup v2 without swap accounting", tree: cgroup.Tree{V2: true},
			files: fstest.MapFS{
				"proc/self/status":                        file(all),
				"proc/swaps":                              file("Filename"),
				"sys/fs/cgroup/system.slice/memory.max":   file("max"),
				"sys/fs/cgroup/system.slice/memory.stats": file(""),
			},
			want: ocispec.Host{CgroupV2: true, Capabilities: ocispec.AllCapabilities(), MinOOMScoreAdj: -1000},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Detect(tt.files, tt.tree)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("host (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetectErrors(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]string{
		"no bounding set": "CapEff:\t0\n", "no number": "CapEff:\t0\nCapBnd:\tz\n", "no effective set": "CapBnd:\t0\n",
	} {
		if _, err := Detect(fstest.MapFS{"proc/self/status": file(status)}, cgroup.Tree{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Detect(fstest.MapFS{}, cgroup.Tree{}); err == nil {
		t.Error("without /proc: no error")
	}
}

func TestSwap(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:        8388608 kB\nSwapCached:            0 kB\nSwapTotal:       2097152 kB\nSwapFree:        2097152 kB\n"
	for _, tt := range []struct {
		host    ocispec.Host
		meminfo string
		want    int64
		err     string
	}{
		{host: ocispec.Host{CgroupV2: true, SwapLimit: true}, meminfo: meminfo, want: 2 << 30},
		{host: ocispec.Host{SwapLimit: true}, meminfo: meminfo, err: "it needs cgroup v2, and this machine has cgroup v1"},
		{host: ocispec.Host{CgroupV2: true}, meminfo: meminfo, err: "the kernel does not count the swap of cgroups (CONFIG_SWAP and no swapaccount=0)"},
		{
			host: ocispec.Host{CgroupV2: true, SwapLimit: true}, meminfo: "MemTotal: 1 kB\n",
			err: `reading the machine's swap: /proc/meminfo: SwapTotal: strconv.ParseInt: parsing "": invalid syntax`,
		},
	} {
		got, err := Swap(fstest.MapFS{"proc/meminfo": {Data: []byte(tt.meminfo)}}, tt.host)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%+v: %d, %v", tt.host, got, err)
		}
	}
}
