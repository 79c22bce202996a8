package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/internal/podevent"
)

// Events is the document for the events of pods.
type Events struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`   // Events
	Events     []Event `json:"events"` // those that have happened last at the end
	Failure
}

// Event is an event of a pod. Pods of the same name that follow each other are told apart by their UIDs.
type Event struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"` // its name
	UID       string `json:"uid"` // of the pod
	podevent.Event
}

// NewEvents returns the document for the events.
func NewEvents(all []Event) Events {
	sorted := append([]Event{}, all...)
	slices.SortStableFunc(sorted, func(a, b Event) int { return a.LastSeen.Compare(b.LastSeen) })
	return Events{APIVersion: APIVersion, Kind: "Events", Events: sorted}
}

// Table writes one row for each event, with ages at now, as "kubectl events" does.
func (e Events) Table(w io.Writer, now time.Time) error {
	_, err := io.WriteString(w, e.text(now))
	return err
}

func (e Events) text(now time.Time) string {
	t := table{columns: []column{namespaceColumn(), {title: "LAST SEEN"}, {title: "TYPE"}, {title: "REASON"}, {title: "OBJECT"}, {title: "MESSAGE"}}}
	for i := range e.Events {
		one := &e.Events[i]
		t.add(one.Namespace, one.seen(now), one.Type, one.Reason, "Pod/"+one.Pod, one.Message)
	}
	t.trim()
	return t.text()
}

// seen says when the event has happened, and how often (k8s.io/kubectl/pkg/cmd/events getInterval).
func (e *Event) seen(now time.Time) string {
	since := func(t time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }
	if e.Count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", since(e.LastSeen), e.Count, since(e.FirstSeen))
	}
	return since(e.LastSeen)
}

// EventLog writes events as they happen. The zero value has written nothing yet.
type EventLog struct{ shown map[string]int }

// Write writes a row for each of the events that was not written yet or has happened again since, as far as the
// columns allow below those before.
func (l *EventLog) Write(w io.Writer, all []Event, now time.Time) error {
	first := l.shown == nil
	counts := map[string]int{} // without those that are gone
	var old, added []Event
	for _, e := range NewEvents(all).Events {
		id := strings.Join([]string{e.UID, e.Type, e.Reason, e.Container, e.Message}, "\x00")
		if e.Count > l.shown[id] {
			added = append(added, e)
		} else {
			old = append(old, e)
		}
		counts[id] = e.Count
	}
	l.shown = counts
	lines := slices.Collect(strings.Lines(Events{Events: slices.Concat(old, added)}.text(now)))
	if !first {
		lines = lines[len(lines)-len(added):]
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
