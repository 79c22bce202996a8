package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// view is what a container sees from inside.
type view struct {
	Args       []string            `json:"args"`
	Env        []string            `json:"env"`
	Cwd        string              `json:"cwd"`
	Hostname   string              `json:"hostname"`
	PID        int                 `json:"pid"`
	UID        int                 `json:"uid"`
	GID        int                 `json:"gid"`
	EUID       int                 `json:"euid"`
	EGID       int                 `json:"egid"`
	Groups     []int               `json:"groups"`
	Status     map[string]string   `json:"status"` // /proc/self/status: CapEff, NoNewPrivs, Seccomp, ...
	OOMScore   string              `json:"oomScoreAdj"`
	Namespaces map[string]string   `json:"namespaces"` // name to "net:[4026531840]"
	Mounts     []mount             `json:"mounts"`
	Cgroup     []string            `json:"cgroup"` // /proc/self/cgroup
	Limits     map[string]string   `json:"limits"` // cgroup file to its content
	Hosts      string              `json:"hosts"`
	Resolv     string              `json:"resolvConf"`
	Interfaces map[string][]string `json:"interfaces"`
	Sysctls    map[string]string   `json:"sysctls,omitempty"`
	Files      map[string]file     `json:"files,omitempty"`
	Processes  []string            `json:"processes"` // argv[0] of all that /proc shows
}

type mount struct {
	Path    string   `json:"path"`
	Root    string   `json:"root"`
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options"`
	Super   []string `json:"super"`
	Tags    []string `json:"tags,omitempty"` // shared:N, master:N
}

type file struct {
	Mode    string   `json:"mode,omitempty"`
	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Size    int64    `json:"size"`
	Link    string   `json:"link,omitempty"`
	Content string   `json:"content,omitempty"`
	Entries []string `json:"entries,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func inspect(args []string) error {
	set := flag.NewFlagSet("inspect", flag.ContinueOnError)
	out := set.String("out", "", "write here as well")
	stat := set.String("stat", "", "paths to describe, comma-separated")
	sysctl := set.String("sysctl", "", "sysctls to read, comma-separated")
	hold := set.Bool("hold", false, "sleep afterwards")
	if err := set.Parse(args); err != nil {
		return err
	}
	v := look()
	v.Args = os.Args
	v.Files, v.Sysctls = map[string]file{}, map[string]string{}
	for _, p := range split(*stat) {
		v.Files[p] = describe(p)
	}
	for _, s := range split(*sysctl) {
		v.Sysctls[s] = read("/proc/sys/" + strings.ReplaceAll(s, ".", "/"))
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if *out != "" {
		if err := os.WriteFile(*out, b, 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Stdout.Write(b); err != nil {
		return err
	}
	if *hold {
		return sleep(nil)
	}
	return nil
}

func look() view {
	cwd, _ := os.Getwd()
	host, _ := os.Hostname()
	groups, _ := os.Getgroups()
	return view{
		Env: os.Environ(), Cwd: cwd, Hostname: host,
		PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), EUID: os.Geteuid(), EGID: os.Getegid(),
		Groups:     groups,
		Status:     status(),
		OOMScore:   read("/proc/self/oom_score_adj"),
		Namespaces: namespaces(),
		Mounts:     mounts(),
		Cgroup:     lines("/proc/self/cgroup"),
		Limits:     limits(),
		Hosts:      read("/etc/hosts"),
		Resolv:     read("/etc/resolv.conf"),
		Interfaces: interfaces(),
		Processes:  processes(),
	}
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func read(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\n")
}

func lines(name string) []string {
	return strings.Split(read(name), "\n")
}

func status() map[string]string {
	m := map[string]string{}
	for _, l := range lines("/proc/self/status") {
		if k, v, ok := strings.Cut(l, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

func namespaces() map[string]string {
	m := map[string]string{}
	names, _ := filepath.Glob("/proc/self/ns/*")
	for _, n := range names {
		m[filepath.Base(n)], _ = os.Readlink(n)
	}
	return m
}

// mounts parses /proc/self/mountinfo; see proc_pid_mountinfo(5).
func mounts() []mount {
	var out []mount
	for _, l := range lines("/proc/self/mountinfo") {
		before, after, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		out = append(out, mount{
			Root: f[3], Path: f[4], Options: strings.Split(f[5], ","), Tags: f[6:],
			Type: g[0], Source: g[1], Super: strings.Split(g[2], ","),
		})
	}
	return out
}

// limits reads the limits of this container's cgroup where /sys/fs/cgroup shows them, in
// either version's layout.
func limits() map[string]string {
	m := map[string]string{}
	for _, dir := range []string{"", "memory/", "cpu/", "cpu,cpuacct/", "pids/", "cpuset/"} {
		for _, f := range []string{
			"memory.limit_in_bytes", "memory.max", "memory.min", "memory.low", "memory.high", "cpu.shares", "cpu.weight",
			"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max", "pids.max", "cpuset.cpus",
		} {
			if v := read("/sys/fs/cgroup/" + dir + f); v != "" {
				m[f] = v
			}
		}
	}
	return m
}

func interfaces() map[string][]string {
	m := map[string][]string{}
	all, _ := net.Interfaces()
	for _, i := range all {
		m[i.Name] = []string{}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			m[i.Name] = append(m[i.Name], a.String())
		}
	}
	return m
}

func processes() []string {
	var out []string
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			continue
		}
		arg0, _, _ := bytes.Cut(b, []byte{0})
		out = append(out, string(arg0))
	}
	return out
}

func describe(p string) file {
	info, err := os.Lstat(p)
	if err != nil {
		return file{Error: err.Error()}
	}
	f := file{Mode: info.Mode().String(), Size: info.Size()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID = s.Uid, s.Gid
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		f.Link, _ = os.Readlink(p)
	case info.IsDir():
		entries, err := os.ReadDir(p)
		f.Error = text(err)
		for _, e := range entries {
			f.Entries = append(f.Entries, e.Name())
		}
		return f
	}
	f.Content, err = head(p)
	f.Error = text(err)
	return f
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// head returns the first 4 KiB of a file.
func head(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := bufio.NewReaderSize(f, 4096).Peek(4096)
	if errors.Is(err, os.ErrClosed) {
		return "", err
	}
	return string(b), nil
}
