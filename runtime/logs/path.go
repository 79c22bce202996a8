// Package logs writes and reads the log files of containers, in the kubelet's directory layout
// and the format of the Container Runtime Interface.
package logs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pod is what the path of a pod's logs depends on.
type Pod struct{ Namespace, Name, UID string }

// Dir returns the directory of the pod's logs, which has a directory for each container
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

// LastAttempt returns the highest attempt that has a log file in a container's directory, if
// only a rotated one. The error wraps fs.ErrNotExist when there is none.
func LastAttempt(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("listing logs: %w", err)
	}
	last := -1
	for _, e := range entries {
		name := e.Name()
		if i := strings.LastIndexByte(name, '.'); i > 0 && isStamp(name[i+1:]) {
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
