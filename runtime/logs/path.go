// Package logs holds the log files of containers: where they are, in the directory layout
// of the kubelet; how they are written, in the format of the Container Runtime Interface;
// and how they are read back.
package logs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Pod is what the place of a pod's logs depends on.
type Pod struct{ Namespace, Name, UID string }

// Dir returns the directory of the pod's logs, a directory for each container in it
// (pkg/kubelet/kuberuntime BuildPodLogsDirectory).
func (p Pod) Dir(logDir string) string {
	return filepath.Join(logDir, p.Namespace+"_"+p.Name+"_"+p.UID)
}

// Path returns the log file of an instance of a container; attempt 0 is the first
// (pkg/kubelet/kuberuntime buildContainerLogsPath).
func Path(logDir string, pod Pod, container string, attempt int) string {
	return filepath.Join(pod.Dir(logDir), container, attemptName(attempt))
}

func attemptName(attempt int) string { return strconv.Itoa(attempt) + ".log" }

// attemptOf returns the attempt that a path of Path is for.
func attemptOf(path string) (int, bool) {
	name, ok := strings.CutSuffix(filepath.Base(path), ".log")
	n, err := strconv.Atoi(name)
	return n, ok && err == nil && n >= 0 && attemptName(n) == filepath.Base(path)
}

// LastAttempt returns the highest attempt that has a log file in a container's directory,
// which may be a rotated one alone while the next is being made. The error wraps
// fs.ErrNotExist when there is none.
func LastAttempt(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("listing logs: %w", err)
	}
	last := -1
	for _, e := range entries {
		name := e.Name()
		if i := len(name) - stampLength - 1; i > 0 && name[i] == '.' && isStamp(name[i+1:]) {
			name = name[:i]
		}
		if n, ok := attemptOf(name); ok {
			last = max(last, n)
		}
	}
	if last < 0 {
		return 0, fmt.Errorf("listing logs in %s: no log file: %w", dir, fs.ErrNotExist)
	}
	return last, nil
}

// stampLength is the length of the time in a rotated file's name, 20060102-150405.
const stampLength = 15

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

func isStamp(s string) bool {
	if len(s) != stampLength {
		return false
	}
	for i := range len(s) {
		if i == 8 && s[i] != '-' || i != 8 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}
