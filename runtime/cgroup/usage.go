package cgroup

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podusage"
)

// Usage returns what the pod has used since its cgroup was created, and those of its containers that have the IDs. One
// that has no cgroup any more is left out; if the pod has none, the error wraps fs.ErrNotExist.
func (t Tree) Usage(pod *v1.Pod, ids []string) (of podusage.Sample, containers map[string]podusage.Sample, err error) {
	at := t.locate(pod).path
	if of, err = t.cgroup(at).Sample(); err != nil {
		return podusage.Sample{}, nil, fmt.Errorf("reading what cgroup %s uses: %w", at, err)
	}
	containers = map[string]podusage.Sample{}
	for _, id := range ids {
		for _, dir := range within(filepath.Join(t.dirs["memory"], at), id) {
			used, err := t.cgroup(filepath.Join(at, filepath.Base(dir))).Sample()
			switch {
			case err == nil:
				containers[id] = used
			case !gone(err):
				return podusage.Sample{}, nil, fmt.Errorf("reading what container %s uses: %w", id, err)
			}
		}
	}
	return of, containers, nil
}

// Totals returns what the pod's containers with the IDs have used since they were started. One that has no cgroup any
// more is left out.
func (t Tree) Totals(pod *v1.Pod, ids []string) map[string]podusage.Total {
	at, totals := t.locate(pod).path, map[string]podusage.Total{}
	for _, id := range ids {
		for _, dir := range within(filepath.Join(t.dirs["memory"], at), id) {
			if used := t.cgroup(filepath.Join(at, filepath.Base(dir))).Total(); used != (podusage.Total{}) {
				totals[id] = used
			}
		}
	}
	return totals
}

// cgroup returns the directories of the cgroup with the path.
func (t Tree) cgroup(at string) podusage.Cgroup {
	in := func(controller string) string {
		if t.dirs[controller] == "" {
			return ""
		}
		return filepath.Join(t.dirs[controller], at)
	}
	if t.V2 {
		return podusage.Cgroup{V2: true, CPU: in("cpu"), Memory: in("memory"), IO: in("io")}
	}
	return podusage.Cgroup{CPU: in("cpuacct"), Memory: in("memory"), IO: in("blkio")}
}
