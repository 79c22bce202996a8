// Package logs writes and reads the log files of containers, in the kubelet's directory layout
// and the format of the Container Runtime Interface.
package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Pod is what the path of a pod's logs depends on.
type Pod struct{ Namespace, Name, UID string }

// Dir returns the directory of the pod's logs, which has a directory for each container
// (pkg/kubelet/kuberuntime BuildPodLogsDirectory).
func (p Pod) Dir(logDir string) string {
	return filepath.Join(logDir, p.Namespace+"_"+p.Name+"_"+p.UID)
}

// attemptName is the name of an instance's log (pkg/kubelet/kuberuntime
// buildContainerLogsPath). Here the numbers count on when the pod is removed and run again.
func attemptName(attempt int) string { return strconv.Itoa(attempt) + ".log" }

// attemptOf is the inverse of attemptName.
func attemptOf(name string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSuffix(name, ".log"))
	return n, err == nil && n >= 0 && attemptName(n) == name
}

// Attempts returns, in order, the numbers of the logs in a container's directory, those
// included of which only rotated files are left.
func Attempts(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	var all []int
	for _, e := range entries {
		name := e.Name()
		if i := strings.LastIndexByte(name, '.'); i > 0 && isStamp(name[i+1:]) {
			name = name[:i]
		}
		if n, ok := attemptOf(name); ok {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Newest returns the path of the newest log in a container's directory, or of the one before.
// The error wraps fs.ErrNotExist when there is none.
func Newest(dir string, previous bool) (string, error) {
	all, err := Attempts(dir)
	if err != nil {
		return "", err
	}
	if previous {
		all = all[:max(0, len(all)-1)]
	}
	if len(all) == 0 {
		return "", fmt.Errorf("listing logs in %s: no such log: %w", dir, fs.ErrNotExist)
	}
	return filepath.Join(dir, attemptName(all[len(all)-1])), nil
}

// removeAttempts removes the logs with these numbers.
func removeAttempts(dir string, attempts []int) error {
	for _, n := range attempts {
		path := filepath.Join(dir, attemptName(n))
		files, err := rotatedFiles(path)
		if err != nil {
			return err
		}
		for _, f := range append(files, path) {
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("removing old log: %w", err)
			}
		}
	}
	return nil
}

// blockSize is the unit of st_blocks, whatever the block size of the file system.
const blockSize = 512

// DiskUsage returns how many bytes of disk the log at path uses, with its rotated files. An
// absent one uses nothing.
func DiskUsage(path string) (int64, error) {
	if path == "" {
		return 0, nil
	}
	files, err := rotatedFiles(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	var used int64
	for _, f := range append(files, path) {
		var st syscall.Stat_t
		if err := syscall.Lstat(f, &st); err == nil { // else it was removed meanwhile
			used += st.Blocks * blockSize
		}
	}
	return used, nil
}

// rotatedStamp is the time at the end of a rotated file's name.
const rotatedStamp = "20060102-150405"

func isStamp(s string) bool {
	_, err := time.Parse(rotatedStamp, s)
	return err == nil
}

// rotatedFiles returns the rotated files that belong to the log file at path, the oldest
// first.
func rotatedFiles(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	var found []string
	for _, e := range entries {
		if stamp, ok := strings.CutPrefix(e.Name(), name+"."); ok && isStamp(stamp) {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(found)
	return found, nil
}
