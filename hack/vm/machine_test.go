package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/moby/sys/mountinfo"

	"github.com/runonce/runonce/hack/vm/job"
)

// TestMachine runs in the machines and checks that each has the init system and the cgroups of
// its kind.
func TestMachine(t *testing.T) {
	t.Parallel()
	name := os.Getenv(job.Machine)
	if name == "" {
		t.Skip("runs in the machines of make test-vm")
	}
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
	if i < 0 {
		t.Fatalf("unknown machine %q", name)
	}
	memory := cgroups(t, name)
	if first, err := os.ReadFile("/proc/1/comm"); err != nil || (string(first) == "systemd\n") != kinds()[i].systemd {
		t.Errorf("the init process is %q, %v", first, err)
	}
	if !kinds()[i].systemd {
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			t.Error("/run/systemd/system exists, by which programs detect systemd")
		}
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Error(err)
	}
	systemdLimitsMemory(t, memory)
}

// cgroups checks the machine's cgroup mounts and returns the path of a cgroup's memory limit,
// with %s for the cgroup.
func cgroups(t *testing.T, name string) string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter("/sys/fs/cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, m := range mounts {
		kinds[strings.TrimPrefix(m.Mountpoint, "/sys/fs/cgroup")] = m.FSType
	}
	if name != job.SystemdV1 {
		if len(kinds) != 1 || kinds[""] != "cgroup2" {
			t.Errorf("mounts below /sys/fs/cgroup: %v, want cgroup2 alone", kinds)
		}
		return "/sys/fs/cgroup/%s/memory.max"
	}
	for point, want := range map[string]string{
		"": "tmpfs", "/unified": "cgroup2", "/systemd": "cgroup", "/memory": "cgroup", "/cpu,cpuacct": "cgroup", "/pids": "cgroup",
	} {
		if kinds[point] != want {
			t.Errorf("/sys/fs/cgroup%s is %q, want %s, of %v", point, kinds[point], want, kinds)
		}
	}
	return "/sys/fs/cgroup/memory/%s/memory.limit_in_bytes"
}

// systemdLimitsMemory creates a slice over systemd's private bus, as runtimes do.
func systemdLimitsMemory(t *testing.T, file string) {
	t.Helper()
	bus, err := systemd.NewSystemdConnectionContext(t.Context())
	if err != nil {
		t.Fatalf("connecting to systemd: %v", err)
	}
	defer bus.Close()
	const slice, limit = "vmtest-memory.slice", 64 << 20
	done := make(chan string, 1)
	_, err = bus.StartTransientUnitContext(t.Context(), slice, "replace", []systemd.Property{
		{Name: "MemoryMax", Value: dbus.MakeVariant(uint64(limit))},
	}, done)
	if err != nil {
		t.Fatalf("starting %s: %v", slice, err)
	}
	if result := <-done; result != "done" {
		t.Errorf("starting %s: %s", slice, result)
	}
	got, err := os.ReadFile(strings.Replace(file, "%s", filepath.Join("vmtest.slice", slice), 1))
	if err != nil || strings.TrimSpace(string(got)) != "67108864" {
		t.Errorf("the memory of %s is %q, %v, want %d", slice, got, err, limit)
	}
	if _, err := bus.StopUnitContext(t.Context(), slice, "replace", done); err != nil {
		t.Fatalf("stopping %s: %v", slice, err)
	}
	if result := <-done; result != "done" {
		t.Errorf("stopping %s: %s", slice, result)
	}
}
