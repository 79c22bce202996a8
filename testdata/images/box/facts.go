package main

import (
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// view is what a container sees from inside, in a form that does not depend on the cgroup
// version.
type view struct {
	Args       []string            `json:"args"`
	Env        map[string]string   `json:"env"`
	Cwd        string              `json:"cwd"`
	Hostname   string              `json:"hostname"`
	Domainname string              `json:"domainname"`
	PID        int                 `json:"pid"`
	UID        int                 `json:"uid"`
	GID        int                 `json:"gid"`
	EUID       int                 `json:"euid"`
	EGID       int                 `json:"egid"`
	Groups     []int               `json:"groups"` // supplementary, ascending
	Umask      string              `json:"umask"`
	Caps       map[string][]string `json:"caps"` // effective, permitted, inheritable, bounding, ambient: names without CAP_
	NoNewPrivs bool                `json:"noNewPrivs"`
	Seccomp    string              `json:"seccomp"` // disabled, strict, filter
	Label      string              `json:"label"`   // of AppArmor or SELinux
	OOMScore   int                 `json:"oomScoreAdj"`
	UIDMap     []string            `json:"uidMap"`
	GIDMap     []string            `json:"gidMap"`
	Namespaces map[string]string   `json:"namespaces"` // name to "net:[4026531840]"
	Mounts     map[string]mount    `json:"mounts"`     // by mount point; the last if there are several
	Cgroup     cgroup              `json:"cgroup"`
	Rlimits    map[string][]string `json:"rlimits"` // name as in setrlimit(2) to soft and hard limit, from /proc/self/limits
	Hosts      []string            `json:"hosts"`   // lines of /etc/hosts, fields separated by one space, no comments
	Resolv     []string            `json:"resolvConf"`
	Interfaces map[string][]string `json:"interfaces"`
	Sysctls    map[string]string   `json:"sysctls,omitempty"`
	Files      map[string]file     `json:"files,omitempty"`
	Processes  []string            `json:"processes"` // command lines of all processes in /proc, by PID
	Devices    []string            `json:"devices"`   // device nodes below /dev
	Stdin      string              `json:"stdin"`     // null, pipe, tty, file, socket, closed
	Stdout     string              `json:"stdout"`
	Stderr     string              `json:"stderr"`
	TTYSize    []int               `json:"ttySize,omitempty"` // rows and columns, if there is a terminal
}

func facts(args []string) error {
	set := flag.NewFlagSet("facts", flag.ContinueOnError)
	out := set.String("out", "", "also write to this file")
	stat := set.String("stat", "", "paths to describe, comma-separated")
	sysctl := set.String("sysctl", "", "sysctls to read, comma-separated")
	hold := set.Bool("hold", false, "sleep afterwards")
	if err := set.Parse(args); err != nil {
		return err
	}
	v := look()
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
	status := status()
	oom, _ := strconv.Atoi(read("/proc/self/oom_score_adj"))
	v := view{
		Args: os.Args, Env: environment(), Cwd: cwd,
		PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), EUID: os.Geteuid(), EGID: os.Getegid(),
		Groups: groups(), Umask: status["Umask"],
		Caps: capabilities(status), NoNewPrivs: status["NoNewPrivs"] == "1", Seccomp: seccomp(status["Seccomp"]),
		Label:    read("/proc/self/attr/current"),
		OOMScore: oom,
		UIDMap:   fields("/proc/self/uid_map"), GIDMap: fields("/proc/self/gid_map"),
		Namespaces: namespaces(),
		Mounts:     mounts(),
		Cgroup:     limits(),
		Rlimits:    rlimits(),
		Hosts:      fields("/etc/hosts"),
		Resolv:     fields("/etc/resolv.conf"),
		Interfaces: interfaces(),
		Processes:  processes(),
		Devices:    devices("/dev"),
		Stdin:      stream(0), Stdout: stream(1), Stderr: stream(2),
	}
	var names unix.Utsname
	if unix.Uname(&names) == nil {
		v.Hostname, v.Domainname = unix.ByteSliceToString(names.Nodename[:]), unix.ByteSliceToString(names.Domainname[:])
	}
	for fd := range 3 {
		if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			v.TTYSize = []int{int(size.Row), int(size.Col)}
		}
	}
	return v
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
	return strings.TrimRight(string(b), "\n\x00")
}

// fields returns the lines of a file that are neither empty nor comments, with one space
// between words.
func fields(name string) []string {
	out := []string{}
	for line := range strings.Lines(read(name)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, strings.Join(f, " "))
		}
	}
	return out
}

func environment() map[string]string {
	m := map[string]string{}
	for _, e := range os.Environ() {
		k, v, _ := strings.Cut(e, "=")
		m[k] = v
	}
	return m
}

func groups() []int {
	g, _ := os.Getgroups()
	slices.Sort(g)
	return append([]int{}, g...)
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

// devices lists the device nodes below a directory by their paths.
func devices(dir string) []string {
	out := []string{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&os.ModeDevice != 0:
			out = append(out, path)
		case e.IsDir() && path != "/dev/pts":
			out = append(out, devices(path)...)
		}
	}
	return out
}

// stream returns the type of a file descriptor.
func stream(fd int) string {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return "closed"
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "pipe"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		if st.Rdev == unix.Mkdev(1, 3) {
			return "null"
		}
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return "tty"
		}
		return "device"
	}
	return "file"
}
