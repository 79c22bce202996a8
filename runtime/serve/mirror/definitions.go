package mirror

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/definitions"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// The resources of what runs have read beside pods.
const (
	ConfigMaps             = "configmaps"
	Secrets                = "secrets"
	ReplicationControllers = "replicationcontrollers"
	Deployments            = "deployments"
	ReplicaSets            = "replicasets"
	StatefulSets           = "statefulsets"
	DaemonSets             = "daemonsets"
	Jobs                   = "jobs"
	CronJobs               = "cronjobs"
)

// definedResources are those of definitions, by their kinds.
var definedResources = map[string]string{
	"ConfigMap": ConfigMaps, "Secret": Secrets, "ReplicationController": ReplicationControllers, "Deployment": Deployments, "ReplicaSet": ReplicaSets,
	"StatefulSet": StatefulSets, "DaemonSet": DaemonSets, "Job": Jobs, "CronJob": CronJobs,
}

// seenDefinition is the file of a definition as it was last read.
type seenDefinition struct {
	info   fs.FileInfo
	object podspec.Object // nil for a file that has none
}

// lookAtDefinitions brings the definitions up to date, with the status that follows from the pods.
func (m *Mirror) lookAtDefinitions() error {
	changed, err := m.readDefinitions()
	if err != nil {
		return err
	}
	pods, version, err := m.store.List(Pods, 0)
	if err != nil || !changed && version == m.concluded {
		return err
	}
	made := madeBy(pods)
	all := map[string][]objects.Object{}
	for _, name := range slices.Sorted(maps.Keys(m.definitions)) { // so that a watch has them in one order
		if o := m.definitions[name].object; o != nil {
			resource := definedResources[o.GetObjectKind().GroupVersionKind().Kind]
			all[resource] = append(all[resource], identified(m.conclude(o, made), resource, m.since))
		}
	}
	for _, resource := range definedResources {
		m.store.Replace(resource, all[resource])
	}
	m.concluded = m.store.Version()
	return nil
}

// readDefinitions reads the files that have changed, and reports whether there are any, or some have gone.
func (m *Mirror) readDefinitions() (changed bool, err error) {
	dir := definitions.Dir(m.o.Records.Root())
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the objects of inputs: %w", err)
	}
	now := make(map[string]seenDefinition, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(e.Name()) != definitions.Extension {
			continue
		}
		seen := m.definitions[e.Name()]
		if !atomicfile.Unchanged(seen.info, info) {
			changed = true
			seen = seenDefinition{info, readDefinition(filepath.Join(dir, e.Name()))}
		}
		now[e.Name()] = seen
	}
	changed = changed || len(now) != len(m.definitions)
	m.definitions = now
	return changed, nil
}

// readDefinition returns the object of a file, nil if it has none: it was removed, or somebody else has written it.
func readDefinition(path string) podspec.Object {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	o, err := definitions.Decode(data)
	if err != nil {
		return nil
	}
	return o
}
