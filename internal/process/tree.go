package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// KillTree kills a process with all that descend from it. Those whose parent has ended before are not found.
func KillTree(pid int) error {
	// None of them must start others meanwhile.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return ignoreGone(err)
	}
	all := []int{pid}
	for known := 0; known < len(all); {
		known = len(all)
		for _, child := range Descendants(pid) {
			if !slices.Contains(all, child) {
				_ = syscall.Kill(child, syscall.SIGSTOP)
				all = append(all, child)
			}
		}
	}
	var errs []error
	for _, p := range slices.Backward(all) {
		errs = append(errs, ignoreGone(syscall.Kill(p, syscall.SIGKILL)))
	}
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Descendants returns the children of a process and theirs, in order.
func Descendants(pid int) (found []int) {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if parent, ok := Parent(child); err == nil && ok {
			children[parent] = append(children[parent], child)
		}
	}
	next := []int{pid}
	for len(next) > 0 {
		of := children[next[0]]
		found, next = append(found, of...), append(next[1:], of...)
	}
	slices.Sort(found)
	return found
}

// Parent returns the parent of a process. It returns false for one that does not run any more.
func Parent(pid int) (parent int, ok bool) {
	fields, err := Stat(pid)
	if err != nil {
		return 0, false
	}
	if _, ok = started(fields); ok {
		parent, err = strconv.Atoi(fields[1])
	}
	return parent, ok && err == nil
}

// Name returns the name of a process's program, of at most 15 bytes; empty for a process that is gone.
func Name(pid int) string {
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(name))
}
