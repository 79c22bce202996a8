package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// TempDir makes a directory below parent. If this process is killed, Sweep finds it.
func TempDir(parent string) (string, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, fmt.Sprintf("%s%d-", tempPrefix(), os.Getpid()))
}

// Sweep calls remove with each directory that TempDir has made below parent for a process that has
// ended since. Those of other PID namespaces stay: nothing is known of their processes.
func Sweep(parent string, remove func(dir string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		owner, ok := strings.CutPrefix(e.Name(), tempPrefix())
		owner, _, _ = strings.Cut(owner, "-")
		pid, err := strconv.Atoi(owner)
		if !ok || err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := remove(filepath.Join(parent, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// tempPrefix has the PID namespace.
func tempPrefix() string {
	space, _ := os.Readlink("/proc/self/ns/pid")
	return "tmp-" + strings.Trim(space, "pid:[]") + "-"
}
