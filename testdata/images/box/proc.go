package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilityNames are in the order of their numbers; see capabilities(7).
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

func capabilities(status map[string]string) map[string][]string {
	m := map[string][]string{}
	for set, key := range map[string]string{
		"effective": "CapEff", "permitted": "CapPrm", "inheritable": "CapInh", "bounding": "CapBnd", "ambient": "CapAmb",
	} {
		m[set] = []string{}
		bits, _ := strconv.ParseUint(status[key], 16, 64)
		for i := range 64 {
			if bits&(1<<i) == 0 {
				continue
			}
			name := fmt.Sprint(i)
			if i < len(capabilityNames) {
				name = capabilityNames[i]
			}
			m[set] = append(m[set], name)
		}
		slices.Sort(m[set])
	}
	return m
}

func seccomp(mode string) string {
	return map[string]string{"0": "disabled", "1": "strict", "2": "filter"}[mode]
}

func status() map[string]string {
	m := map[string]string{}
	for l := range strings.Lines(read("/proc/self/status")) {
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

type mount struct {
	Type        string   `json:"type"`
	Root        string   `json:"root"`
	Source      string   `json:"source"`
	Options     []string `json:"options"` // of the mount, then of the file system
	ReadOnly    bool     `json:"readOnly"`
	Propagation string   `json:"propagation"`    // private, shared, slave, shared,slave
	Size        uint64   `json:"size,omitempty"` // bytes, of a tmpfs
}

// mounts parses /proc/self/mountinfo; see proc_pid_mountinfo(5).
func mounts() map[string]mount {
	out := map[string]mount{}
	for l := range strings.Lines(read("/proc/self/mountinfo")) {
		before, after, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		m := mount{
			Root: f[3], Type: g[0], Source: g[1], Options: slices.Concat(strings.Split(f[5], ","), strings.Split(g[2], ",")),
			ReadOnly: slices.Contains(strings.Split(f[5], ","), "ro"), Propagation: propagation(f[6:]),
		}
		var fs unix.Statfs_t
		if m.Type == "tmpfs" && unix.Statfs(f[4], &fs) == nil {
			m.Size = fs.Blocks * uint64(fs.Bsize)
		}
		out[f[4]] = m
	}
	return out
}

// propagation names the meaning of the optional fields shared:N and master:N.
func propagation(tags []string) string {
	var out []string
	for _, t := range tags {
		switch kind, _, _ := strings.Cut(t, ":"); kind {
		case "shared":
			out = append(out, "shared")
		case "master":
			out = append(out, "slave")
		}
	}
	if len(out) == 0 {
		return "private"
	}
	return strings.Join(out, ",")
}

// rlimits parses /proc/self/limits, whose columns have fixed widths.
func rlimits() map[string][]string {
	m := map[string][]string{}
	names := map[string]string{
		"Max cpu time": "cpu", "Max file size": "fsize", "Max data size": "data", "Max stack size": "stack",
		"Max core file size": "core", "Max resident set": "rss", "Max processes": "nproc", "Max open files": "nofile",
		"Max locked memory": "memlock", "Max address space": "as", "Max file locks": "locks", "Max pending signals": "sigpending",
		"Max msgqueue size": "msgqueue", "Max nice priority": "nice", "Max realtime priority": "rtprio", "Max realtime timeout": "rttime",
	}
	for l := range strings.Lines(read("/proc/self/limits")) {
		if len(l) < 26 {
			continue
		}
		if name, values := names[strings.TrimSpace(l[:26])], strings.Fields(l[26:]); name != "" && len(values) > 1 {
			m[name] = values[:2]
		}
	}
	return m
}

// processes lists the command lines of all processes in /proc.
func processes() []string {
	out := []string{}
	entries, _ := os.ReadDir("/proc")
	pids := make([]int, 0, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if line := read(fmt.Sprintf("/proc/%d/cmdline", pid)); line != "" {
			out = append(out, strings.ReplaceAll(line, "\x00", " "))
		}
	}
	return out
}
