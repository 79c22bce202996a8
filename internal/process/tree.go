package process

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// KillTree kills a process with all that descend from it. Those whose parent has ended before are not found.
func KillTree(pid int) error {
	// It must not start others meanwhile.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return ignoreGone(err)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		for _, child := range children(all[i]) {
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

// children returns the child processes of a process, of all its threads.
func children(pid int) (all []int) {
	tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, t := range tasks {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// Parent returns the parent of a process and the name of its program, of at most 15 bytes. A process that has ended has
// none.
func Parent(pid int) (parent int, name string) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, ""
	}
	s, ok := parse(string(data))
	if !ok {
		return 0, ""
	}
	if parent, err = strconv.Atoi(s.parent); err != nil {
		return 0, ""
	}
	comm, _ := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/comm")
	return parent, strings.TrimSpace(string(comm))
}
