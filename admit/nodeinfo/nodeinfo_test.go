package nodeinfo

import (
	"io/fs"
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// machine returns a file system with the given files and those of any machine.
func machine(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/meminfo":              "MemTotal:        8388608 kB\nMemFree:         1024 kB\nMemAvailable:    4194304 kB\nHugePages_Total:       0\n",
		"proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
	} {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, text := range files {
		if text == "" {
			delete(m, name)
			continue
		}
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

const (
	mountV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 none rw,nsdelegate\n"
	mountV1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs none rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup none rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup none rw,memory\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n"
)

func TestRead(t *testing.T) {
	t.Parallel()
	const gibi = 1 << 30
	plain := Facts{MilliCPU: 4000, Memory: 8 * gibi, Available: 4 * gibi, HugePages: map[int64]int64{}, Kernel: "6.1.0-18-amd64"}
	with := func(change func(*Facts)) Facts {
		f := plain
		change(&f)
		return f
	}
	tests := []struct {
		name string
		in   map[string]string
		want Facts
	}{
		{"plain", nil, plain},
		{"an old kernel", map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 1024 kB\nBuffers: 1024 kB\nCached: 2048 kB\n"}, with(func(f *Facts) { f.Available = 4096 << 10 })},
		{"huge pages", map[string]string{
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "3\n",
			"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		}, with(func(f *Facts) { f.HugePages = map[int64]int64{2 << 20: 3, gibi: 0} })},
		{"version 2", map[string]string{
			"proc/self/cgroup":      "0::/init\n",
			"proc/self/mountinfo":   mountV2,
			"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": "1073741824\n",
			"sys/fs/cgroup/memory.current": "1000000000\n", "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 400000000\nactive_file 3\n",
		}, with(func(f *Facts) { f.MilliCPU, f.Memory, f.Available = 1500, gibi, gibi-600000000 })},
		{"a service with limits, which its pods do not have", map[string]string{
			"proc/self/cgroup": "0::/a.slice/b.service\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a.slice/b.service/cpu.max": "150000 100000\n", "sys/fs/cgroup/a.slice/memory.max": "67108864\n",
		}, plain},
		{"version 2 without limits", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n",
		}, plain},
		{"version 1", map[string]string{
			"proc/self/cgroup":                           "8:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/c/d\n0::/\n",
			"proc/self/mountinfo":                        mountV1,
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "147483648\n",
			"sys/fs/cgroup/memory/memory.stat": "inactive_file 5\ntotal_inactive_file 100000000\n",
		}, with(func(f *Facts) { f.MilliCPU, f.Memory, f.Available = 500, 2*gibi, 2*gibi-47483648 })},
		{"version 1 without limits", map[string]string{
			"proc/self/cgroup": "8:memory:/\n2:cpu:/\n", "proc/self/mountinfo": strings.ReplaceAll(mountV1, "cpu,cpuacct", "cpu"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
		}, plain},
		{"in a container that sees its own part of the tree alone", map[string]string{
			"proc/self/cgroup": "2:memory:/docker/abc/x\n", "proc/self/mountinfo": "9 8 0:1 /docker/abc /sys/fs/cgroup/memory ro - cgroup none rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "536870912\n",
		}, with(func(f *Facts) { f.Memory, f.Available = gibi, gibi })},
		{"in a container whose part of the tree is another one", map[string]string{
			"proc/self/cgroup": "0::/../../other\n", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/memory.max": "1073741824\n",
		}, with(func(f *Facts) { f.Memory, f.Available = gibi, gibi })},
		{"less than a thousandth", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/cpu.max": "1 10000000\n"}, with(func(f *Facts) { f.MilliCPU = 1 })},
		{"a mount with a space", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "1 2 0:1 / /my\\040cgroups rw - cgroup2 none rw\n", "my cgroups/memory.max": "1073741824\n",
		}, with(func(f *Facts) { f.Memory, f.Available = gibi, gibi })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(machine(test.in), 4)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   map[string]string
		want string
	}{
		{"no meminfo", map[string]string{"proc/meminfo": ""}, "reading the machine's memory: open proc/meminfo: file does not exist"},
		{"no total", map[string]string{"proc/meminfo": "MemFree: 1 kB\n"}, "reading the machine's memory: /proc/meminfo has no MemTotal"},
		{"not a size", map[string]string{"proc/meminfo": "MemTotal: x kB\n"}, `reading the machine's memory: /proc/meminfo: MemTotal: "x kB" is not a size`},
		{"huge pages", map[string]string{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "x\n"}, "reading the machine's huge pages: /sys/kernel/mm/hugepages/hugepages-2048kB: nr_hugepages is not a number"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(machine(test.in), 4)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestListening(t *testing.T) {
	t.Parallel()
	const heading = "  sl  local_address rem_address   st tx_queue rx_queue\n"
	got, err := Listening(machine(map[string]string{
		"proc/net/tcp": heading +
			"   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 190 1 ffff 100 0 0 10 0\n" +
			"   1: 0100007F:1F90 0100007F:46A0 01 00000000:00000000 03:0000035F 00000000     0        0 0\n" +
			"   2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 03:0000035F 00000000     0        0 0\n",
		"proc/net/tcp6": heading +
			"   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A\n" +
			"   1: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A\n",
		"proc/net/udp":      heading + "   0: 0100007F:0035 00000000:0000 07\n   1: 0100007F:0036 0100007F:0035 01\n",
		"proc/net/sctp/eps": " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n a b 2 10 29 5000 0 1 10.0.0.1 ::1\n c d 2 1 29 5001 0 1 10.0.0.1\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Socket{
		{"SCTP", netip.MustParseAddr("10.0.0.1"), 5000, 1},
		{"SCTP", netip.MustParseAddr("::1"), 5000, 1},
		{"TCP", netip.MustParseAddr("0.0.0.0"), 80, 190},
		{"TCP", netip.MustParseAddr("::"), 80, 0},
		{"TCP", netip.MustParseAddr("127.0.0.1"), 8081, 0},
		{"TCP", netip.MustParseAddr("127.0.0.1"), 8082, 0},
		{"UDP", netip.MustParseAddr("127.0.0.1"), 53, 0},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListeningFaults(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]map[string]string{
		"address": {"proc/net/tcp": "0: 0:0 0:0 0A\n"},
		"port":    {"proc/net/udp6": "0: 00000000:xx 0:0 07\n"},
		"sctp":    {"proc/net/sctp/eps": "a b 2 10 29 5000 0 1 nowhere\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Listening(machine(in)); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestStatfs(t *testing.T) {
	t.Parallel()
	f, err := Statfs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if f.Capacity <= 0 || f.Available < 0 || f.Available > f.Capacity || f.InodesFree > f.Inodes {
		t.Errorf("%+v", f)
	}
	if _, err := Statfs("/no/such/directory"); err == nil || !strings.Contains(err.Error(), `measuring the filesystem of "/no/such/directory": `) {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("MemTotal: 1 kB\n", "0::/a\n", mountV1)
	f.Add("MemTotal: 99999999999999 kB\n", "1:cpu,memory:/../..\n", "1 2 3 /x /y rw - cgroup c cpu\n")
	f.Fuzz(func(t *testing.T, meminfo, cgroup, mountinfo string) {
		fsys := fstest.MapFS{}
		for name, text := range map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, "proc/net/tcp": meminfo,
		} {
			fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: fs.ModePerm}
		}
		if facts, err := Read(fsys, 1); err == nil && (facts.MilliCPU <= 0 || facts.Memory <= 0 || facts.Memory == math.MaxInt64) {
			t.Errorf("%+v", facts)
		}
	})
}
