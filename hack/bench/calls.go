package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// calls counts system calls by name, and the events below, per pod.
type calls map[string]float64

// What else is counted.
const (
	countPrograms = "+programs" // started
	countTasks    = "+tasks"    // processes and threads started
	countFaults   = "+faults"   // pages of memory that the processor did not find
	countWritten  = "+written"  // KiB, also to pipes and sockets
)

// kinds are the columns of the table of calls.
var kinds = []struct{ title, names string }{
	{"programs", countPrograms},
	{"processes, threads", countTasks},
	{"opens", "open openat openat2 creat"},
	{"names changed", "mkdir mkdirat rmdir rename renameat renameat2 unlink unlinkat symlink symlinkat link linkat mknod mknodat"},
	{"mounts", "mount umount move_mount open_tree fsopen fspick fsconfig fsmount mount_setattr pivot_root"},
	{"syncs", "fsync fdatasync syncfs sync sync_file_range msync"},
	{"waits", "futex nanosleep clock_nanosleep epoll_wait epoll_pwait epoll_pwait2 poll ppoll select pselect6 sched_yield"},
	{"KiB written", countWritten},
	{"page faults", countFaults},
}

// system returns the number of system calls. It adds them up in one order, so that a table of a record is always the same.
func (c calls) system() (n float64) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if !strings.HasPrefix(name, "+") {
			n += c[name]
		}
	}
	return n
}

// sum adds up counts, whose names are separated by blanks.
func (c calls) sum(names string) (n float64) {
	for name := range strings.FieldsSeq(names) {
		n += c[name]
	}
	return n
}

// events are what perf records: all system calls, and the results of those that write, which are bytes.
const events = "syscalls:sys_enter_*,sched:sched_process_exec,sched:sched_process_fork,exceptions:page_fault_user," +
	"syscalls:sys_exit_write,syscalls:sys_exit_pwrite64,syscalls:sys_exit_writev,syscalls:sys_exit_pwritev"

const tracing = "/sys/kernel/tracing"

// canCount reports whether system calls can be counted here, and says on stderr why not.
func canCount() bool {
	_, err := exec.LookPath("perf")
	if _, serr := os.Stat(filepath.Join(tracing, "events")); err == nil && serr != nil {
		err = unix.Mount("tracefs", tracing, "tracefs", 0, "")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: system calls are not counted: %v\n", err)
	}
	return err == nil
}

// perfRecord returns the command line that records the calls of the whole machine while a command runs.
func perfRecord(file string, command []string) []string {
	return append([]string{"perf", "record", "-q", "-a", "--synth=no", "-m", "4M", "-o", file, "-e", events, "--"}, command...)
}

// perfScript reads what perf has recorded, and returns the calls of each part.
func perfScript(ctx context.Context, file string, pods int) (_ map[string]calls, err error) {
	cmd := exec.CommandContext(ctx, "perf", "script", "-i", file, "-F", "comm,pid,tid,event,trace")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("reading the calls: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("reading the calls: %w", err)
	}
	all, err := readCalls(out, pods)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("reading the calls: %w", err)
	}
	return all, nil
}

// process is what a process has done, under the last name that it had: that of crun in a container is the container's.
type process struct {
	name  string
	calls calls
}

// readCalls adds up lines such as
//
//	crun  6255/6255  syscalls:sys_enter_openat: dfd: 0xffffff9c, filename: 0x7fb40e2250b1, flags: 0x00080000
func readCalls(r io.Reader, pods int) (map[string]calls, error) {
	processes := map[string]*process{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, pid, event, trace, ok := parseEvent(lines.Text())
		if !ok {
			continue
		}
		if processes[pid] == nil {
			processes[pid] = &process{calls: calls{}}
		}
		processes[pid].name = name
		what, n := count(event, trace)
		processes[pid].calls[what] += n
	}
	all := map[string]calls{}
	for _, p := range processes {
		part := partOf(p.name)
		if part == partOther {
			continue
		}
		if all[part] == nil {
			all[part] = calls{}
		}
		for what, n := range p.calls {
			all[part][what] += n / float64(pods)
		}
	}
	return all, lines.Err()
}

// parseEvent splits a line. A program's name can have blanks.
func parseEvent(line string) (name, pid, event, trace string, ok bool) {
	head, trace, ok := strings.Cut(line, ": ")
	f := strings.Fields(head)
	if !ok || len(f) < 3 {
		return "", "", "", "", false
	}
	pid, _, ok = strings.Cut(f[len(f)-2], "/")
	_, event, colon := strings.Cut(f[len(f)-1], ":")
	return strings.Join(f[:len(f)-2], " "), pid, event, trace, ok && colon
}

// count returns what an event counts for.
func count(event, trace string) (what string, n float64) {
	if name, ok := strings.CutPrefix(event, "sys_enter_"); ok {
		return strings.TrimPrefix(name, "new"), 1 // newfstatat, newstat
	}
	switch event {
	case "sched_process_exec":
		return countPrograms, 1
	case "sched_process_fork":
		return countTasks, 1
	case "page_fault_user":
		return countFaults, 1
	default: // the end of a call that writes, with its result as a hexadecimal number
		n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(trace), "0x"), 16, 64)
		if err != nil || int64(n) < 0 {
			n = 0
		}
		return countWritten, float64(n) / 1024
	}
}

func columnsOfCalls() []string {
	columns := slices.Grow([]string{"variant", "part", "all calls"}, len(kinds))
	for _, k := range kinds {
		columns = append(columns, k.title)
	}
	return columns
}

// callsTable prints what each part does, if it was recorded.
func (r record) callsTable(b *strings.Builder, net string) {
	first := true
	for _, w := range r.Rows {
		if w.Net != net || w.Calls == nil {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n### System calls by program, network: %s, %d pods, per pod\n\n", net, w.Pods)
			header(b, columnsOfCalls()...)
			first = false
		}
		for _, part := range parts {
			c := w.Calls[part]
			if c == nil {
				continue
			}
			fmt.Fprintf(b, "| %s\t| %s\t| %.0f", w.Variant, part, c.system())
			for _, k := range kinds {
				fmt.Fprintf(b, "\t| %.1f", c.sum(k.names))
			}
			b.WriteString("\t|\n")
		}
	}
}
