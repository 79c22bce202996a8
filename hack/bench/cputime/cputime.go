// Package cputime splits the CPU time of a process and its descendants by the programs that
// they ran. It is exact: the kernel reports each task's time when it exits (taskstats), and
// each new process with its parent (process events), also those that outlive their parent.
package cputime

import (
	"slices"
	"time"
)

// fork is a new process or thread.
type fork struct{ parent, task, process int }

// exit is the end of a task. The name of a process is that of the task with its ID.
type exit struct {
	task int
	name string
	cpu  time.Duration
}

// living is a process at the end of the recording, with the time of all its threads.
type living struct {
	process int
	name    string
	cpu     time.Duration
}

// Usage is the CPU time of processes of one name.
type Usage struct {
	Name string
	CPU  time.Duration
}

// family returns the processes among the forks that descend from the roots, with the roots.
func family(roots []int, forks []fork) map[int]bool {
	all := map[int]bool{}
	for _, r := range roots {
		all[r] = true
	}
	for _, f := range forks { // a parent's fork comes before those of its children
		if all[f.parent] {
			all[f.process] = true
		}
	}
	return all
}

// split adds up the time of the roots' descendants, and of the roots, by name. A living
// process's time includes that of its threads that have exited.
func split(roots []int, forks []fork, exits []exit, alive []living) []Usage {
	members, processOf := family(roots, forks), map[int]int{}
	for _, f := range forks {
		processOf[f.task] = f.process
	}
	names := map[int]string{}
	for _, e := range exits {
		names[e.task] = e.name
	}
	sums, counted := map[string]time.Duration{}, map[int]bool{}
	for _, l := range alive {
		counted[l.process] = true
		if members[l.process] {
			sums[l.name] += l.cpu
		}
	}
	for _, e := range exits {
		process, ok := processOf[e.task]
		if !ok {
			process = e.task // a root, or older than the recording
		}
		if !members[process] || counted[process] {
			continue
		}
		name, ok := names[process]
		if !ok {
			name = e.name
		}
		sums[name] += e.cpu
	}
	all := make([]Usage, 0, len(sums))
	for name, cpu := range sums {
		all = append(all, Usage{name, cpu})
	}
	slices.SortFunc(all, func(a, b Usage) int { return int(b.CPU - a.CPU) })
	return all
}
