package mirror_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runtime/events"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

func logsOf(pod *v1.Pod) logs.Pod {
	return logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// happens appends an event of the pod to the file of a root.
func happens(t testing.TB, s logs.Store, pod *v1.Pod, reason, message string) {
	t.Helper()
	must(t, s.MakeDir(logsOf(pod), logs.Mark{Containers: []string{"c0"}}))
	must(t, events.Append(s.EventsPath(logsOf(pod)), podevent.New(v1.EventTypeWarning, reason, "c0", message)))
}

// TestEvents: the events of a file come, happen again, and go with it.
func TestEvents(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, web, job := n.mirror(t, &spy{}), newPod("web"), newPod("job")
	f := follow(t, m, mirror.Events)
	want(t, "nothing", f.changes(), "")
	happens(t, n.logs(), web, "BackOff", "wait")
	happens(t, n.logs(), job, "Failed", "no")
	want(t, "two", f.changes(), "ADDED job Failed no ×1\nADDED web BackOff wait ×1")
	happens(t, n.logs(), web, "BackOff", "wait")
	happens(t, n.logs(), web, "Unhealthy", "ill")
	want(t, "again, and another", f.changes(), "MODIFIED web BackOff wait ×2\nADDED web Unhealthy ill ×1")
	want(t, "nothing new", f.changes(), "")

	all, _, err := m.Store().List(mirror.Events, 0)
	must(t, err)
	e, ok := all[1].(*v1.Event)
	if !ok || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.Name != "web" || e.InvolvedObject.UID != web.UID || e.InvolvedObject.FieldPath != "spec.containers{c0}" ||
		e.FirstTimestamp.IsZero() || e.LastTimestamp.Before(&e.FirstTimestamp) || e.Source.Host != "node" || e.Type != v1.EventTypeWarning {
		t.Errorf("event %+v", all[1])
	}

	path := n.logs().EventsPath(logsOf(web))
	kept, err := events.Read(path)
	must(t, err)
	must(t, os.Remove(path))
	must(t, events.Append(path, kept[len(kept)-1])) // as if the file was compacted
	want(t, "replaced", f.changes(), "DELETED web BackOff wait ×2")
	must(t, os.WriteFile(path, nil, 0o600))
	want(t, "empty", f.changes(), "DELETED web Unhealthy ill ×1")
	happens(t, n.logs(), web, "BackOff", "later")
	want(t, "filled", f.changes(), "ADDED web BackOff later ×1")
	must(t, os.Remove(path))
	want(t, "removed", f.changes(), "DELETED web BackOff later ×1")
	must(t, n.logs().Remove(logsOf(job)))
	want(t, "logs removed", f.changes(), "DELETED job Failed no ×1")
}

// TestCompaction: what a file keeps of very many events is shown, and nothing else.
func TestCompaction(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, web := n.mirror(t, &spy{}), newPod("web")
	for i := range 300 {
		happens(t, n.logs(), web, "BackOff", fmt.Sprintf("%03d %s", i, strings.Repeat("x", 500)))
		if i%10 == 0 {
			must(t, m.Sync(t.Context()))
		}
	}
	kept, err := events.Read(n.logs().EventsPath(logsOf(web)))
	must(t, err)
	shown := strings.Split(list(t, m, mirror.Events), "\n")
	want(t, "events", len(shown), len(kept))
	if len(kept) > 200 {
		t.Errorf("%d events were kept, so that this tests nothing", len(kept))
	}
}

// TestEventsOfRemoved: the events of a pod stay as long as its logs.
func TestEventsOfRemoved(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	p, m := n.process(t), n.mirror(t, &spy{})
	web := p.start(t, newPod("web", "sleep"))
	p.Record(web, podevent.New(v1.EventTypeWarning, "BackOff", "c0", "wait"))
	must(t, p.Stop(t.Context(), web))
	want(t, "pods", list(t, m, mirror.Pods), "")
	if all := list(t, m, mirror.Events); !strings.Contains(all, "web BackOff wait ×1") || !strings.Contains(all, "web Started") {
		t.Errorf("events: %s", all)
	}
	must(t, n.logs().Remove(logsOf(web)))
	want(t, "events", list(t, m, mirror.Events), "")
}

// TestEventsUnreadable: events that cannot be read stay as they were.
func TestEventsUnreadable(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, web := n.mirror(t, &spy{}), newPod("web")
	happens(t, n.logs(), web, "BackOff", "wait")
	f := follow(t, m, mirror.Events)
	want(t, "before", f.changes(), "ADDED web BackOff wait ×1")
	dir := n.logs().Dir
	must(t, os.Rename(dir, dir+"-moved"))
	must(t, os.WriteFile(dir, nil, 0o600))
	if err := m.Sync(t.Context()); err == nil {
		t.Error("no error")
	}
	want(t, "meanwhile", f.seen(), "")
	must(t, os.Remove(dir))
	must(t, os.Rename(dir+"-moved", dir))
	want(t, "after", f.changes(), "")
}

// TestOthers: what is not this root's is not shown, and neither is what is elsewhere or would have a reader wait.
func TestOthers(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, other, outside := n.mirror(t, &spy{}), n.logs(), t.TempDir()
	other.Root = "/other"
	happens(t, other, newPod("others"), "BackOff", "wait")
	happens(t, n.logs(), newPod("both"), "BackOff", "ours")
	happens(t, other, newPod("both"), "BackOff", "theirs")
	must(t, os.MkdirAll(filepath.Join(n.logs().Dir, "kube-system_dns_uid-dns", "c0"), 0o755))

	// A file like ours in a directory that nobody has marked as ours.
	happens(t, n.logs(), newPod("unmarked"), "BackOff", "unmarked")
	marks, err := filepath.Glob(filepath.Join(logsOf(newPod("unmarked")).Dir(n.logs().Dir), ".*"))
	must(t, err)
	want(t, "marks", len(marks), 1)
	must(t, os.Remove(marks[0]))
	// A directory that is elsewhere, marked as this root's.
	elsewhere := n.logs()
	elsewhere.Dir = outside
	happens(t, elsewhere, newPod("outside"), "BackOff", "outside")
	must(t, os.Symlink(logsOf(newPod("outside")).Dir(outside), logsOf(newPod("outside")).Dir(n.logs().Dir)))
	// Files that are elsewhere, in directories that are this root's.
	for pod, target := range map[string]string{
		"linked":   elsewhere.EventsPath(logsOf(newPod("outside"))),
		"dangling": filepath.Join(outside, "none"), "loop": n.logs().EventsPath(logsOf(newPod("loop"))),
	} {
		must(t, n.logs().MakeDir(logsOf(newPod(pod)), logs.Mark{}))
		must(t, os.Symlink(target, n.logs().EventsPath(logsOf(newPod(pod)))))
	}
	must(t, n.logs().MakeDir(logsOf(newPod("pipe")), logs.Mark{}))
	must(t, syscall.Mkfifo(n.logs().EventsPath(logsOf(newPod("pipe"))), 0o600))
	must(t, n.logs().MakeDir(logsOf(newPod("dir")), logs.Mark{}))
	must(t, os.Mkdir(n.logs().EventsPath(logsOf(newPod("dir"))), 0o700))

	looked := make(chan error, 1)
	go func() { looked <- m.Sync(t.Context()) }()
	select {
	case err := <-looked:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the look does not end")
	}
	want(t, "events", list(t, m, mirror.Events), "both BackOff ours ×1")
	want(t, "namespaces", list(t, m, mirror.Namespaces), "/default")

	// A file that is replaced by a link is gone.
	path := n.logs().EventsPath(logsOf(newPod("both")))
	must(t, os.Rename(path, filepath.Join(outside, "moved")))
	must(t, os.Symlink(filepath.Join(outside, "moved"), path))
	want(t, "events after a file was replaced", list(t, m, mirror.Events), "")
}

// TestEventNames: an event keeps its name and its UID, also in another process, and no two have the same.
func TestEventNames(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, later := n.mirror(t, &spy{}), n.mirror(t, &spy{})
	again := newPod("web")
	again.UID = "uid-2"
	for _, pod := range []*v1.Pod{newPod("web"), again} {
		happens(t, n.logs(), pod, "BackOff", "wait")
		happens(t, n.logs(), pod, "BackOff", "other")
		happens(t, n.logs(), pod, "Failed", "wait")
	}
	names := map[types.NamespacedName]types.UID{}
	for i, m := range []*mirror.Mirror{m, later} {
		must(t, m.Sync(t.Context()))
		all, _, err := m.Store().List(mirror.Events, 0)
		must(t, err)
		want(t, "events", len(all), 6)
		for _, o := range all {
			name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
			if uid, known := names[name]; known != (i == 1) || known && uid != o.GetUID() {
				t.Errorf("process %d: %s %s, before %s", i, name, o.GetUID(), uid)
			}
			names[name] = o.GetUID()
		}
		happens(t, n.logs(), again, "Failed", "wait")
	}
}
