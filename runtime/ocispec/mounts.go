package ocispec

import (
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// defaultMounts are the kernel's file systems that every container gets (containerd's
// defaultMounts without /run, as in its CRI plugin).
func defaultMounts(privileged bool) []specs.Mount {
	access := "ro"
	if privileged {
		access = "rw"
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{
			Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
		},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", access}},
		{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", access},
		},
	}
}

// mergeMounts adds the container's mounts to the default ones, parents before children
// (containerd's withMounts). Each replaces a default one with the same destination, and a
// mount at /dev all default ones below it.
func mergeMounts(defaults, extra []specs.Mount) []specs.Mount {
	own := map[string]bool{}
	for _, m := range extra {
		own[path.Clean(m.Destination)] = true
	}
	merged := make([]specs.Mount, 0, len(defaults)+len(extra))
	for _, m := range defaults {
		if own[m.Destination] || (own["/dev"] && strings.HasPrefix(m.Destination, "/dev/")) {
			continue
		}
		merged = append(merged, m)
	}
	sorted := slices.Clone(extra)
	slices.SortStableFunc(sorted, func(a, b specs.Mount) int { return depth(a.Destination) - depth(b.Destination) })
	return append(merged, sorted...)
}

func depth(p string) int { return strings.Count(strings.TrimSuffix(path.Clean(p), "/"), "/") }

// rootPropagation returns the mount propagation that the container's root file system needs:
// the strongest that any of its mounts has.
func rootPropagation(mounts []specs.Mount) string {
	propagation := ""
	for _, m := range mounts {
		if slices.Contains(m.Options, "rshared") || slices.Contains(m.Options, "shared") {
			return "rshared"
		}
		if slices.Contains(m.Options, "rslave") || slices.Contains(m.Options, "slave") {
			propagation = "rslave"
		}
	}
	return propagation
}
