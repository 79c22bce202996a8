package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// process is a shim, or a process of a container.
type process struct {
	pid     int
	command string
}

// process returns a random process of the installation whose command line has the word. It
// returns false if there is none.
func (r *round) process(word string) (process, bool, error) {
	all, err := r.installation().Processes()
	if err != nil {
		return process{}, false, err
	}
	var found []process
	for _, p := range all {
		id, command, _ := strings.Cut(p, " ")
		if pid, err := strconv.Atoi(id); err == nil && strings.Contains(command, word) {
			found = append(found, process{pid, command})
		}
	}
	if len(found) == 0 {
		return process{}, false, nil
	}
	return found[r.IntN(len(found))], true, nil
}

var (
	// podPath is the path of a ledger or of a log, which names the pod.
	podPath = regexp.MustCompile(`(?:/ledgers/|/default_)(p\d+)[._]`)
	// shimID is the ID of the container that a shim was started for.
	shimID = regexp.MustCompile(` -id (\S+)`)
)

// podOf returns the name of the pod that a process belongs to, empty if it cannot be told.
func (r *round) podOf(command string) string {
	if m := podPath.FindStringSubmatch(command); m != nil {
		return m[1]
	}
	m := shimID.FindStringSubmatch(command)
	if m == nil {
		return ""
	}
	i := slices.IndexFunc(r.pods, func(p *v1.Pod) bool { return r.owns(p, m[1]) })
	if i < 0 {
		return ""
	}
	return r.pods[i].Name
}

// owns tells whether a container of that ID belongs to the pod, whose UID its logs have.
func (r *round) owns(p *v1.Pod, id string) bool {
	prefix := filepath.Join(r.dir, "logs", "default_"+p.Name+"_")
	dirs, err := filepath.Glob(prefix + "*")
	if err != nil || len(dirs) != 1 {
		return false
	}
	return slices.ContainsFunc(append(containers(p), "POD"), func(name string) bool {
		return engine.IsContainer(id, strings.TrimPrefix(dirs[0], prefix), name)
	})
}
