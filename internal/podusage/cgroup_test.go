package podusage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTotal: the files of both versions say the same, and what the kernel does not tell is left out.
func TestTotal(t *testing.T) {
	t.Parallel()
	all := Total{
		CPUSeconds: new(2.5), PeakMemoryBytes: new(int64(4096)), ReadBytes: new(int64(15)), WrittenBytes: new(int64(7)), OOMKills: new(int64(2)),
	}
	for _, tt := range []struct {
		name  string
		v2    bool
		files map[string]string
		want  Total
	}{
		{"v1", false, map[string]string{
			"cpuacct.usage": "2500000000\n", "memory.max_usage_in_bytes": "4096\n", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 3\n8:0 Sync 13\n8:0 Total 13\n8:16 Read 5\n8:16 Write 4\nTotal 22\n",
		}, all},
		{"v2", true, map[string]string{
			"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.peak": "4096\n", "memory.events": "oom 3\noom_kill 2\noom_group_kill 1\n",
			"io.stat": "8:0 rbytes=10 wbytes=3 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=5 wbytes=4\n",
		}, all},
		{"v1 of a kernel that counts no kills, without traffic", false, map[string]string{
			"memory.oom_control": "oom_kill_disable 0\n", "blkio.throttle.io_service_bytes_recursive": "Total 0\n",
		}, Total{ReadBytes: new(int64), WrittenBytes: new(int64)}},
		{"v2 of a kernel that counts no peak", true, map[string]string{
			"cpu.stat": "usage_usec 1\n", "memory.events": "oom_kill 0\n",
		}, Total{CPUSeconds: new(0.000001), OOMKills: new(int64)}},
		{"no cgroup any more", true, nil, Total{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, Cgroup{V2: tt.v2, CPU: dir, Memory: dir, IO: dir}.Total()); diff != "" {
				t.Error(diff)
			}
			if got := (Cgroup{V2: tt.v2, Memory: dir}).Total(); got.CPUSeconds != nil || got.ReadBytes != nil {
				t.Errorf("controllers that are not mounted: %+v", got)
			}
		})
	}
}
