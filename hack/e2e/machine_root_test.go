package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/network/bridge"
)

// machine is everything that pods could leave behind on the machine.
type machine struct {
	Mounts    []string
	Links     []string
	Netns     []string
	Processes []string
	Cgroups   []string
	Rules     []string
}

// inspect returns the current state of the machine.
func (b *box) inspect(t *testing.T) machine {
	t.Helper()
	return machine{
		Mounts: b.mounts(t), Links: b.links(t), Netns: names(t, "/run/netns"), Processes: b.processes(t),
		Cgroups: b.cgroups(t), Rules: b.rules(t),
	}
}

// since returns what is new on the machine. What has gone meanwhile was not this test's.
func (m machine) since(before machine) machine {
	added := func(now, then []string) []string {
		left := slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(then, s) })
		if len(left) == 0 {
			return nil
		}
		return left
	}
	return machine{
		Mounts: added(m.Mounts, before.Mounts), Links: added(m.Links, before.Links), Netns: added(m.Netns, before.Netns),
		Processes: added(m.Processes, before.Processes), Cgroups: added(m.Cgroups, before.Cgroups), Rules: added(m.Rules, before.Rules),
	}
}

// unchanged fails the test if there is something new on the machine, or if the box still has
// files of a pod. Processes may take a moment to be reaped.
func (b *box) unchanged(t *testing.T) {
	t.Helper()
	diff := func() string { return cmp.Diff(machine{}, b.inspect(t).since(b.before)) }
	if !eventually(func() bool { return diff() == "" }) {
		t.Errorf("left on the machine:\n%s", diff())
	}
	for _, dir := range []string{"root/pods", "state/pods", "state/runc"} {
		if left := files(t, filepath.Join(b.dir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

// checkInspect fails the test unless inspect sees what a running pod on the box's bridge needs;
// otherwise unchanged would be worth nothing.
func (b *box) checkInspect(t *testing.T) {
	t.Helper()
	m := b.inspect(t).since(b.before)
	for what, found := range map[string][]string{
		"mounts": m.Mounts, "links": m.Links, "processes": m.Processes, "cgroups": m.Cgroups, "rules": m.Rules,
	} {
		if len(found) == 0 {
			t.Errorf("no %s of the running pods found", what)
		}
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return found
}

// mounts lists the mount points below the box's directory.
func (b *box) mounts(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, b.dir) {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// processes lists the shims of the box and the processes of its containers. Containers are
// recognized by their mounts, so that they are found even without their shim. Zombies do not
// count.
func (b *box) processes(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pid := range names(t, "/proc") {
		line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
		if err != nil {
			continue
		}
		cmd := strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
		shim := strings.Contains(cmd, b.dir) && strings.Contains(cmd, "shim")
		if shim || isContainer(cmd) && strings.Contains(string(mounts), b.dir) {
			found = append(found, pid+" "+cmd)
		}
	}
	return found
}

// containers lists the processes of the box's containers.
func (b *box) containers(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(b.processes(t), func(p string) bool {
		_, command, _ := strings.Cut(p, " ")
		return !isContainer(command)
	})
}

// isContainer tells whether a command line is that of a container of these tests.
func isContainer(command string) bool {
	return strings.HasPrefix(command, "/bin/box") || strings.HasPrefix(command, "etcd ")
}

// Other installations of runonce may be at work on this machine: their bridges and parent cgroups
// have names like these.
var (
	anyBridge = regexp.MustCompile(`\brunonce-[0-9a-f]{6}\b`)
	anyParent = regexp.MustCompile(`/runonce-[0-9a-f]{8}\b`)
)

// ownedByOther tells whether s names something of that kind, and only of other installations.
func ownedByOther(s string, kind *regexp.Regexp, own string) bool {
	found := kind.FindAllString(s, -1)
	return len(found) > 0 && !slices.Contains(found, own)
}

// bridge is the name of the box's bridge.
func (b *box) bridge() string { return bridge.Name(filepath.Join(b.dir, "state", "network")) }

// links lists the network interfaces of the machine, but for other bridges and their ports.
func (b *box) links(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, "/sys/class/net"), func(name string) bool {
		master, err := os.Readlink(filepath.Join("/sys/class/net", name, "master"))
		return ownedByOther(name, anyBridge, b.bridge()) || err == nil && filepath.Base(master) != b.bridge()
	})
}

// cgroups lists the cgroups of pods in every hierarchy.
func (b *box) cgroups(t *testing.T) []string {
	t.Helper()
	sum := sha256.Sum256([]byte(filepath.Join(b.dir, "root")))
	own := "/runonce-" + hex.EncodeToString(sum[:4])
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		// A cgroup that has gone meanwhile does not count.
		if err == nil && e.IsDir() && strings.Contains(path, "/runonce") && !ownedByOther(path, anyParent, own) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// rules lists the rules of the NAT table.
func (b *box) rules(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "iptables-save", "-t", "nat").Output()
	if err != nil {
		return nil // no iptables, no rules
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A") && !ownedByOther(line, anyBridge, b.bridge()) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
