package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/events"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// component is what reports all events of this machine.
const component = "runonce"

// seenEvents are the events of a file as it was last read.
type seenEvents struct {
	file  fs.FileInfo
	names []types.NamespacedName
}

// lookAtEvents reads the files of events that have changed.
func (m *Mirror) lookAtEvents() error {
	found, err := m.o.Logs.List()
	if err != nil {
		return err
	}
	gone := maps.Clone(m.events)
	for _, f := range found {
		if !f.Owned {
			continue
		}
		path := m.o.Logs.EventsPath(f.Pod)
		file, serr := os.Lstat(path)
		if errors.Is(serr, fs.ErrNotExist) || serr == nil && !file.Mode().IsRegular() { // nobody's, and a pipe would block
			continue
		}
		delete(gone, path)
		if serr == nil && atomicfile.Unchanged(m.events[path].file, file) {
			continue
		}
		if serr == nil {
			serr = m.readEvents(path, file, f.Pod)
		}
		err = errors.Join(err, serr)
	}
	for path, seen := range gone {
		delete(m.events, path)
		m.deleteEvents(seen.names, nil)
	}
	return err
}

func (m *Mirror) readEvents(path string, file fs.FileInfo, pod logs.Pod) error {
	all, err := events.Read(path)
	if err != nil {
		return err
	}
	now := seenEvents{file: file}
	kept := map[types.NamespacedName]bool{}
	changed := make([]objects.Object, 0, len(all))
	for _, e := range all {
		o := m.event(pod, e)
		name := podspec.NameOf(o)
		now.names, kept[name] = append(now.names, name), true
		changed = append(changed, o)
	}
	m.deleteEvents(m.events[path].names, kept)
	m.store.Set(Events, changed...)
	m.events[path] = now
	return nil
}

func (m *Mirror) deleteEvents(names []types.NamespacedName, but map[types.NamespacedName]bool) {
	for _, name := range names {
		if !but[name] {
			m.store.Delete(Events, name)
		}
	}
}

// event returns an event of a pod as the API has it. Its name stays when it happens again.
func (m *Mirror) event(pod logs.Pod, e podevent.Event) *v1.Event {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{pod.UID, e.Type, e.Reason, e.Container, e.Message}))
	path := ""
	if e.Container != "" {
		path = "spec.containers{" + e.Container + "}"
	}
	return identified(&v1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name + "." + hex.EncodeToString(sum[:8]), CreationTimestamp: metav1.NewTime(e.FirstSeen),
		},
		InvolvedObject: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID), FieldPath: path,
		},
		Reason: e.Reason, Message: e.Message, Type: e.Type, Count: int32(e.Count),
		FirstTimestamp: metav1.NewTime(e.FirstSeen), LastTimestamp: metav1.NewTime(e.LastSeen),
		Source: v1.EventSource{Component: component, Host: m.o.Node.Name}, ReportingController: component, ReportingInstance: m.o.Node.Name,
	}, Events, m.since)
}
