// Package machine tells what an installation of runonce has left on the machine: mounts,
// interfaces, processes, cgroups, rules and files.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/service/rules"
)

// Installation is one installation of runonce. Others may be at work on the same machine.
type Installation struct {
	// Dir has the installation's directories root and state. Its last element must be unique on the machine: /run may be
	// a file system of its own, where mounts in a container do not tell more.
	Dir string
	// Programs are the first words of the command lines of processes in its containers.
	Programs []string
}

// State is everything that pods could leave behind.
type State struct {
	Mounts    []string
	Links     []string
	Processes []string
	Cgroups   []string
	Rules     []string
	Services  []string // their tables of rules and routes
}

// Inspect returns the current state of the machine.
func (i Installation) Inspect(ctx context.Context) (State, error) {
	mounts, err1 := i.mounts()
	links, err2 := i.links()
	processes, err3 := i.Processes()
	cgroups, err4 := i.cgroups()
	services, err5 := i.services()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return State{}, fmt.Errorf("inspecting the machine: %w", err)
	}
	return State{mounts, links, processes, cgroups, i.rules(ctx), services}, nil
}

// Since returns what is new on the machine. What has gone meanwhile was not this
// installation's.
func (s State) Since(before State) State {
	added := func(now, then []string) []string {
		left := slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(then, s) })
		if len(left) == 0 {
			return nil
		}
		return left
	}
	return State{
		Mounts: added(s.Mounts, before.Mounts), Links: added(s.Links, before.Links), Processes: added(s.Processes, before.Processes),
		Cgroups: added(s.Cgroups, before.Cgroups), Rules: added(s.Rules, before.Rules), Services: added(s.Services, before.Services),
	}
}

// PodFiles returns the files of pods and of Services that the installation has.
func (i Installation) PodFiles() ([]string, error) {
	var found []string
	for _, dir := range []string{"root/pods", "root/services.json", "state/pods", "state/runc"} {
		err := filepath.WalkDir(filepath.Join(i.Dir, dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing the files of pods: %w", err)
		}
	}
	return found, nil
}

// mounts lists the mount points below the installation's directory.
func (i Installation) mounts() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(i.Dir))
	points := make([]string, 0, len(mounts))
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	slices.Sort(points)
	return points, err
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, nil
}

// Processes lists the installation's shims and the processes of its containers, each as its ID
// and command line. Containers are recognized by their mounts, so that they are found even
// without their shim. Zombies do not count.
func (i Installation) Processes() ([]string, error) {
	pids, err := names("/proc")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, pid := range pids {
		line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
		if err != nil {
			continue
		}
		command := strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
		shim := strings.Contains(command, i.Dir) && strings.Contains(command, "shim")
		if shim || i.isContainer(command) && strings.Contains(string(mounts), filepath.Base(i.Dir)) {
			found = append(found, pid+" "+command)
		}
	}
	return found, nil
}

// Containers lists the processes of the installation's containers, as Processes does.
func (i Installation) Containers() ([]string, error) {
	all, err := i.Processes()
	return slices.DeleteFunc(all, func(p string) bool {
		_, command, _ := strings.Cut(p, " ")
		return !i.isContainer(command)
	}), err
}

func (i Installation) isContainer(command string) bool {
	return slices.ContainsFunc(i.Programs, func(p string) bool { return command == p || strings.HasPrefix(command, p+" ") })
}

// bridge is the name of the installation's bridge.
func (i Installation) bridge() string {
	return network.BridgeName(filepath.Join(i.Dir, "state", "network"))
}

// shaper matches the names that the CNI plugin bandwidth gives to its interfaces, which are on no bridge.
var shaper = regexp.MustCompile(`^bwp[0-9a-f]{12}$`)

// links lists the installation's bridge and its ports, and interfaces that limit a pod's bandwidth. A veth on no
// bridge may belong to another program. It goes with the namespace of its other end, which is among the mounts.
func (i Installation) links() ([]string, error) {
	all, err := network.Listed(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	bridge := -1
	for _, l := range all {
		if l.Attrs().Name == i.bridge() {
			bridge = l.Attrs().Index
		}
	}
	var found []string
	for _, l := range all {
		a := l.Attrs()
		if a.Index == bridge || a.MasterIndex == bridge || shaper.MatchString(a.Name) {
			found = append(found, a.Name)
		}
	}
	return found, nil
}

// cgroups lists the cgroups of the pods in every hierarchy.
func (i Installation) cgroups() ([]string, error) {
	// A slice has another separator before it.
	own := strings.TrimPrefix(cgroup.ParentOf(filepath.Join(i.Dir, "root")), cgroup.DefaultParent+"-")
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		// A cgroup that has gone meanwhile does not count.
		if err == nil && e.IsDir() && strings.Contains(path, "/runonce") && strings.Contains(path, own) {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// rules lists the installation's rules of the NAT table, its tables of nftables, and its routes to Services.
func (i Installation) rules(ctx context.Context) []string {
	var found []string
	// Where there is no iptables or nft, there are no rules.
	if out, err := exec.CommandContext(ctx, "iptables-save", "-t", "nat").Output(); err == nil {
		found = ownRules(string(out), i.bridge())
	}
	return append(found, i.Services(ctx)...)
}

// Services lists the tables and the routes of the installation's Services.
func (i Installation) Services(ctx context.Context) []string {
	var found []string
	for _, command := range [][]string{
		{"nft", "list", "tables"},
		{"ip", "-4", "-o", "route", "show", "table", "all", "proto", "114"}, // see runtime/service/rules
		{"ip", "-6", "-o", "route", "show", "table", "all", "proto", "114"},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, i.bridge()) {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return found
}

// Tables returns the installation's tables of nftables.
func (i Installation) Tables() (all []*nftables.Table, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("connecting to nftables: %w", err)
	}
	all, err = c.ListTables()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil, nil // the kernel has no nftables
	}
	return slices.DeleteFunc(all, func(t *nftables.Table) bool { return !strings.HasPrefix(t.Name, i.bridge()) }), err
}

// services lists the tables of nftables and the routes of Services.
func (i Installation) services() (found []string, err error) {
	tables, err := i.Tables()
	if err != nil {
		return nil, err
	}
	name := rules.TableName(i.bridge())
	for _, t := range tables {
		if t.Name == name {
			found = append(found, fmt.Sprintf("table %d %s", t.Family, t.Name))
		}
	}
	routes, err := rules.Routes(name)
	for _, r := range routes {
		found = append(found, "route "+r.String())
	}
	return found, err
}

// perPod begins the names of chains with the rules of a single pod, for its host ports and its source
// address. Other chains of CNI plugins are those of all programs that use the plugins.
var perPod = regexp.MustCompile(`^CNI-(DN-)?[0-9a-f]{21,}$`)

// ownRules returns the rules of a listing that name the bridge, those of the chains that they lead to,
// and those of chains of pods that no rule leads to any more: they are nobody's.
func ownRules(listing, bridge string) []string {
	var found []string
	own, reached := map[string]bool{}, map[string]bool{}
	rules := slices.DeleteFunc(strings.Split(listing, "\n"), func(line string) bool { return !strings.HasPrefix(line, "-A ") })
	named := func(rule string) bool { return strings.Contains(rule, bridge) }
	for _, rule := range rules {
		f := strings.Fields(rule)
		target := f[len(f)-1]
		reached[target] = true
		own[target] = own[target] || named(rule) && perPod.MatchString(target)
	}
	for _, rule := range rules {
		chain := strings.Fields(rule)[1]
		if named(rule) || own[chain] || perPod.MatchString(chain) && !reached[chain] {
			found = append(found, rule)
		}
	}
	return found
}

// KillGroup kills a process with all that it has started and that is in its process group: OCI runtimes and network
// plugins, which would go on for a moment. It waits until they are gone, but not for long: some may be zombies that
// nobody has waited for.
func KillGroup(pid int) error {
	group, err := unix.Getpgid(pid)
	if errors.Is(err, unix.ESRCH) {
		group, err = pid, nil // of which others may be left
	}
	if err == nil && group == unix.Getpgrp() {
		err = errors.New("it is in the group of this process")
	}
	for deadline := time.Now().Add(time.Second); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		err = unix.Kill(-group, unix.SIGKILL)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing the process group of %d: %w", pid, err)
	}
	return nil
}
