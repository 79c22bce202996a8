package mirror_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// run runs a mirror that learns nothing from the engine, and returns once it has looked.
func run(t testing.TB, n *machine, change ...func(*mirror.Options)) (*mirror.Mirror, *spy) {
	t.Helper()
	looked := make(chan struct{})
	s := &spy{deaf: true, known: sync.OnceValue(func() error { close(looked); return nil })}
	m := n.mirror(t, s, change...)
	var running sync.WaitGroup
	running.Go(func() { m.Run(t.Context()) })
	t.Cleanup(running.Wait)
	<-looked
	return m, s
}

// eventuallyLists waits until these are the objects, without looks of its own.
func eventuallyLists(t testing.TB, m *mirror.Mirror, what, resource, expect string) {
	t.Helper()
	eventually(t, m, what+": "+expect, func() bool {
		all, _, err := m.Store().List(resource, 0)
		must(t, err)
		text := ""
		for _, o := range all {
			text += show(o) + "\n"
		}
		return text == expect
	})
}

// TestRecords: what another process records is noticed by itself, in directories that are made and removed meanwhile.
func TestRecords(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, _ := run(t, n)
	p, web := n.process(t), newPod("web", "sleep")
	begin := func(pod *v1.Pod) {
		t.Helper()
		_, err := p.records.Update(pod.UID, func(r *record.Pod) error { r.Start(pod); return nil })
		must(t, err)
	}
	// Other runs admit pods before they start them.
	admitting := p.records.NewRun()
	defer func() { must(t, admitting.Close()) }() // it goes on until then
	must(t, admitting.Enter(t.Context()))
	must(t, admitting.Reserve([]*v1.Pod{web}))
	must(t, admitting.Leave())
	eventuallyLists(t, m, "admitted", mirror.Pods, "web Pending waits\n")
	begin(newPod("job", "sleep"))
	begin(web)
	eventuallyLists(t, m, "begun", mirror.Pods, "job Pending waits\nweb Pending waits\n")
	ended := p.records.NewRun()
	must(t, ended.Enter(t.Context()))
	must(t, ended.Reserve([]*v1.Pod{newPod("never", "sleep")}))
	must(t, ended.Leave())
	eventuallyLists(t, m, "also admitted", mirror.Pods, "job Pending waits\nnever Pending waits\nweb Pending waits\n")
	must(t, ended.Close())
	must(t, m.Sync(t.Context()))
	eventuallyLists(t, m, "not started", mirror.Pods, "job Pending waits\nweb Pending waits\n")
	for range 5 {
		must(t, p.records.Stop(web.UID))
		eventuallyLists(t, m, "being stopped", mirror.Pods, "job Pending waits\nweb stopping Pending waits\n")
		must(t, p.records.Remove(web.UID))
		eventuallyLists(t, m, "removed", mirror.Pods, "job Pending waits\n")
		begin(web)
		eventuallyLists(t, m, "begun again", mirror.Pods, "job Pending waits\nweb Pending waits\n")
	}
	// The directory is another one, although the mirror has not seen it gone.
	must(t, p.records.Remove(web.UID))
	begin(web)
	must(t, p.records.Stop(web.UID))
	eventually(t, m, "stopped", func() bool {
		// It is Failed for a mirror that has only seen it since it was stopped.
		o, ok := m.Store().Get(mirror.Pods, podspec.NameOf(web))
		return ok && o.GetDeletionTimestamp() != nil
	})
	must(t, os.RemoveAll(filepath.Dir(p.records.Dir(web.UID))))
	eventuallyLists(t, m, "all removed", mirror.Pods, "")
	begin(web)
	eventuallyLists(t, m, "begun after that", mirror.Pods, "web Pending waits\n")
	must(t, p.records.Stop(web.UID))
	eventuallyLists(t, m, "stopped after that", mirror.Pods, "web stopping Pending waits\n")
}

// TestEventFiles: events are noticed by themselves, also if the directory of all logs is made later. Until then the one
// above it is watched, which may be a busy one.
func TestEventFiles(t *testing.T) {
	t.Parallel()
	n, above := newMachine(t), t.TempDir()
	store := logs.Store{Dir: filepath.Join(above, "a", "b", "log"), Root: n.root}
	m, s := run(t, n, func(o *mirror.Options) { o.Logs = store })
	web := newPod("web")
	for _, dir := range []string{"a", "a/b"} { // which may be seen one by one
		must(t, os.Mkdir(filepath.Join(above, dir), 0o700))
		time.Sleep(10 * time.Millisecond)
	}
	happens(t, store, web, "BackOff", "wait")
	eventuallyLists(t, m, "the first", mirror.Events, "web BackOff wait ×1\n")
	happens(t, store, web, "BackOff", "wait")
	eventuallyLists(t, m, "again", mirror.Events, "web BackOff wait ×2\n")
	path := store.EventsPath(logsOf(web))
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path+".tmp", data[:bytes.IndexByte(data, '\n')+1], 0o600))
	must(t, os.Rename(path+".tmp", path))
	eventuallyLists(t, m, "compacted", mirror.Events, "web BackOff wait ×1\n")
	must(t, os.Remove(path))
	eventuallyLists(t, m, "removed", mirror.Events, "")
	happens(t, store, web, "BackOff", "later")
	eventuallyLists(t, m, "made again", mirror.Events, "web BackOff later ×1\n")
	must(t, store.Remove(logsOf(web)))
	eventuallyLists(t, m, "removed with the logs", mirror.Events, "")
	wantQuiet(t, m, s, func() { must(t, os.WriteFile(filepath.Join(above, "busy"), nil, 0o600)) })
}

// TestServiceFile: the file with the Services is in the root.
func TestServiceFile(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, s := run(t, n)
	n.process(t).start(t, newPod("web", "sleep"))
	happens(t, n.logs(), newPod("web"), "BackOff", "wait")
	must(t, m.Sync(t.Context())) // from now on all directories exist
	wantQuiet(t, m, s, func() {})
	n.define(newService("web"))
	must(t, os.WriteFile(filepath.Join(n.root, "services.json"), nil, 0o600))
	eventuallyLists(t, m, "defined", mirror.Services, "web\n")
}

// wantQuiet fails the test if the mirror looks after something, or because it has looked.
func wantQuiet(t *testing.T, m *mirror.Mirror, s *spy, happens func()) {
	t.Helper()
	// What has happened before may have caused looks that are still to come.
	for before := int32(-1); before != s.looks.Load(); time.Sleep(200 * time.Millisecond) {
		before = s.looks.Load()
	}
	before := s.looks.Load()
	happens()
	for range 5 {
		must(t, m.Sync(t.Context()))
	}
	time.Sleep(300 * time.Millisecond)
	want(t, "looks", s.looks.Load()-before, 5)
}

// TestClientsFirst: clients may ask before and while the mirror begins to run.
func TestClientsFirst(t *testing.T) {
	t.Parallel()
	n, s := newMachine(t), &spy{}
	n.process(t).start(t, newPod("web", "sleep"))
	m := n.mirror(t, s)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for range 20 {
				must(t, m.Sync(t.Context()))
			}
		})
	}
	all.Go(func() { m.Run(t.Context()) })
	t.Cleanup(all.Wait)
	want(t, "pods", list(t, m, mirror.Pods), "web Running runs")
}
