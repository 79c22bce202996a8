// Package logdir finds the logs of pods by their names, in the kubelet's layout.
package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/exitcode"
	"github.com/runonce/runonce/runtime/logs"
)

// maxTail bounds the last lines of one container in a report, in bytes.
const maxTail = 16 << 10

// Dir is the directory of all logs. It finds those of containers for results.
type Dir string

// Path returns the log file of one instance of a container.
func (l Dir) Path(pod *v1.Pod, container string, restart int) string {
	return logs.Path(string(l), logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, container, restart)
}

// Tail returns the last lines of one instance of a container; one that wrote nothing has
// none.
func (l Dir) Tail(pod *v1.Pod, container string, restart, n int) ([]string, error) {
	lines, err := logs.Tail(l.Path(pod, container, restart), n, maxTail)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lines, err
}

// Find returns the directory of the pod's logs, the newest when several pods of that
// name have left some.
func (l Dir) Find(ref string) (string, error) {
	namespace, name, ok := strings.Cut(ref, "/")
	if !ok {
		namespace, name = "", ref
	}
	dir := string(l)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("looking for logs: %w", err)
	}
	newest, found, where := time.Time{}, "", map[string]bool{}
	for _, e := range entries {
		// NAMESPACE_NAME_UID; neither of them can hold an underscore.
		parts := strings.Split(e.Name(), "_")
		if len(parts) != 3 || parts[1] != name || (namespace != "" && parts[0] != namespace) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was removed this moment
		}
		where[parts[0]] = true
		if found == "" || info.ModTime().After(newest) {
			newest, found = info.ModTime(), filepath.Join(dir, e.Name())
		}
	}
	switch {
	case found == "":
		return "", exitcode.Usagef("no logs of a pod %q in %s; %q lists the pods", ref, dir, "runonce ps")
	case len(where) > 1:
		return "", exitcode.Usagef("pod %q is in several namespaces: name one as NAMESPACE/%s", name, name)
	}
	return found, nil
}
