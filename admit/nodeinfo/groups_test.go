package nodeinfo

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	id  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	uid = "01234567-89ab-cdef-0123-456789abcdef"
)

// cgroupFiles makes the files of cgroups with a process each, from those that a test names by their paths below the
// mount point.
func cgroupFiles(mount string, named map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range named {
		all[mount+name] = text + "\n"
		procs := mount + name[:strings.LastIndex(name, "/")] + "/cgroup.procs"
		if _, ok := all[procs]; !ok {
			all[procs] = "1\n"
		}
	}
	return all
}

func v2(named map[string]string) map[string]string {
	all := cgroupFiles("sys/fs/cgroup", named)
	maps.Copy(all, map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2})
	return all
}

// v1 has the files by controller. The machine also has a unified hierarchy, without controllers.
func v1(cpu, memory map[string]string) map[string]string {
	all := cgroupFiles("sys/fs/cgroup/cpu,cpuacct", cpu)
	maps.Copy(all, cgroupFiles("sys/fs/cgroup/memory", memory))
	maps.Copy(all, map[string]string{
		"proc/self/cgroup": "8:memory:/\n2:cpu,cpuacct:/\n0::/\n", "proc/self/mountinfo": mountV1,
		"sys/fs/cgroup/unified/docker/" + id + "/cgroup.procs": "1\n",
	})
	return all
}

func TestGroups(t *testing.T) {
	t.Parallel()
	const (
		slice  = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice"
		scope  = "/system.slice/docker-" + id + ".scope"
		libpod = "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope"
	)
	tests := []struct {
		name string
		in   map[string]string
		want []Group
	}{
		{"nothing", v2(map[string]string{"/system.slice/ssh.service/memory.current": "5", "/init.scope/cpu.weight": "300"}), nil},
		{"a burstable pod of a kubelet with systemd", v2(map[string]string{
			slice + "/cpu.weight": "39", slice + "/memory.current": "70000000", slice + "/memory.stat": "inactive_file 20000000",
			slice + "/memory.max": "900000000", slice + "/memory.min": "0", slice + "/memory.low": "0",
			slice + "/cri-containerd-" + id + ".scope/cpu.weight": "39",
		}), []Group{{slice, KindPod, 1000, 50000000}}},
		{"memory that is kept for it", v2(map[string]string{
			slice + "/memory.current": "7", slice + "/memory.min": "80000000", slice + "/memory.low": "max",
		}), []Group{{slice, KindPod, 0, 80000000}}},
		{"a best-effort pod", v2(map[string]string{
			"/kubepods/besteffort/pod" + uid + "/cpu.weight": "1", "/kubepods/besteffort/pod" + uid + "/memory.max": "5",
		}), []Group{{"/kubepods/besteffort/pod" + uid, KindPod, 0, 0}}},
		{"a guaranteed pod, whose limit is its request", v2(map[string]string{
			"/kubepods/pod" + uid + "/cpu.weight": "77", "/kubepods/pod" + uid + "/memory.max": "900", "/kubepods/pod" + uid + "/memory.current": "5",
		}), []Group{{"/kubepods/pod" + uid, KindPod, 1973, 900}}},
		{"a static pod", v2(map[string]string{
			"/kubepods/burstable/pod0123456789abcdef0123456789abcdef/cpu.weight": "4",
		}), []Group{{"/kubepods/burstable/pod0123456789abcdef0123456789abcdef", KindPod, 104, 0}}},
		{"docker, of which the default share is nothing and a limit as well", v2(map[string]string{
			scope + "/cpu.weight": "100", scope + "/cpu.max": "150000 100000", scope + "/memory.max": "900", scope + "/memory.current": "80",
		}), []Group{{scope, KindContainer, 0, 80}}},
		{"docker with a share and a reservation", v2(map[string]string{
			scope + "/cpu.weight": "59", scope + "/memory.low": "900", scope + "/memory.current": "80",
		}), []Group{{scope, KindContainer, 509, 900}}},
		{"docker's builds", v2(map[string]string{"/docker/buildkit/abc/memory.current": "80"}), []Group{{"/docker/buildkit/abc", KindContainer, 0, 80}}},
		{"a container in a container is part of that", v2(map[string]string{
			scope + "/memory.current": "80", scope + "/kubelet/kubepods/pod" + uid + "/memory.current": "50",
		}), []Group{{scope, KindContainer, 0, 80}}},
		{"processes are further down", v2(map[string]string{
			scope + "/init/memory.current": "80",
		}), []Group{{scope, KindContainer, 0, 0}}},
		{"podman with and without root", v2(map[string]string{
			"/machine.slice/libpod-" + id + ".scope/memory.current": "80", "/machine.slice/libpod-conmon-" + id + ".scope/memory.current": "3",
			libpod + "/memory.current": "40", "/libpod_parent/libpod-" + id + "/memory.current": "20", "/libpod_parent/conmon/memory.current": "3",
		}), []Group{
			{"/libpod_parent/libpod-" + id, KindContainer, 0, 20}, {"/machine.slice/libpod-" + id + ".scope", KindContainer, 0, 80}, {libpod, KindContainer, 0, 40},
		}},
		{"a pod of podman", v2(map[string]string{
			"/machine.slice/machine-libpod_pod_" + id + ".slice/libpod-" + id + ".scope/memory.current": "80",
		}), []Group{{"/machine.slice/machine-libpod_pod_" + id + ".slice/libpod-" + id + ".scope", KindContainer, 0, 80}}},
		{"CRI-O, containerd, LXC, systemd-nspawn", v2(map[string]string{
			"/system.slice/crio-" + id + ".scope/memory.current": "1", "/system.slice/crio-conmon-" + id + ".scope/memory.current": "9",
			"/default/web/memory.current": "2", "/system.slice/nerdctl-" + id + ".scope/memory.current": "3", "/lxc.payload.db/memory.current": "4",
			"/lxc.monitor.db/memory.current": "9", "/machine.slice/systemd-nspawn@old.service/memory.current": "5", "/machine.slice/cpu.weight": "77",
		}), []Group{
			{"/default/web", KindContainer, 0, 2},
			{"/lxc.payload.db", KindContainer, 0, 4},
			{"/machine.slice/systemd-nspawn@old.service", KindMachine, 0, 5},
			{"/system.slice/crio-" + id + ".scope", KindContainer, 0, 1},
			{"/system.slice/nerdctl-" + id + ".scope", KindContainer, 0, 3},
		}},
		{"runonce with another root, and with this one", v2(map[string]string{
			"/runonce-01020304/burstable/pod" + uid + "/cpu.weight": "100", "/runonce-01020304/shims/memory.current": "9",
			"/runonce/burstable/pod" + uid + "/cpu.weight": "100",
		}), []Group{{"/runonce-01020304/burstable/pod" + uid, KindPod, 1000, 0}}},
		{"version 1", v1(
			map[string]string{"/docker/" + id + "/cpu.shares": "2048", "/kubepods/pod" + uid + "/cpu.shares": "1024", "/libpod_parent/libpod-" + id + "/cpu.shares": "1024"},
			map[string]string{
				"/docker/" + id + "/memory.usage_in_bytes": "80", "/docker/" + id + "/memory.stat": "total_inactive_file 30",
				"/docker/" + id + "/memory.soft_limit_in_bytes": "9223372036854771712", "/default/x/memory.soft_limit_in_bytes": "900",
				"/kubepods/pod" + uid + "/memory.limit_in_bytes": "9223372036854771712",
			}), []Group{
			{"/default/x", KindContainer, 0, 900},
			{"/docker/" + id, KindContainer, 2000, 50},
			{"/kubepods/pod" + uid, KindPod, 1000, 0},
			{"/libpod_parent/libpod-" + id, KindContainer, 0, 0},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Groups(machine(test.in), func(path string) bool { return path == "/runonce" })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGroupsWithoutProcesses(t *testing.T) {
	t.Parallel()
	files := v2(map[string]string{"/docker/" + id + "/memory.current": "80"})
	files["sys/fs/cgroup/docker/"+id+"/cgroup.procs"] = "\n"
	if got, err := Groups(machine(files), func(string) bool { return false }); len(got) > 0 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGroupsWithoutCgroups(t *testing.T) {
	t.Parallel()
	_, err := Groups(machine(nil), func(string) bool { return false })
	if err == nil || err.Error() != "looking for other containers on this machine: the controllers cpu and memory are not mounted" {
		t.Errorf("%v", err)
	}
}

// TestKubeletShares: what a kubelet makes of shares is the weight for at most those.
func TestKubeletShares(t *testing.T) {
	t.Parallel()
	for _, shares := range []uint64{2, 102, 512, 1024, 4096, 262144} {
		weight := 1 + (shares-2)*9999/262142
		if got := kubeletShares(weight); got < shares && weight > 1 || 1+(got-2)*9999/262142 != weight {
			t.Errorf("%d shares are weight %d, and that %d shares", shares, weight, got)
		}
	}
}
