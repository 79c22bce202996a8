package tables

import (
	"cmp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// eventCells follows printEvent. Events of the newer API have the time at which they were first seen elsewhere, and a
// series if they were seen again.
func eventCells(e *v1.Event, now time.Time) []any {
	first := e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	last := e.LastTimestamp.Time
	if last.IsZero() {
		last = first
	}
	count := cmp.Or(e.Count, 1)
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	return []any{
		since(last, now),
		e.Type,
		e.Reason,
		eventObject(e.InvolvedObject),
		e.InvolvedObject.FieldPath,
		eventSource(e),
		strings.TrimSpace(e.Message),
		since(first, now),
		int64(count),
		e.Name,
	}
}

// eventObject names an object as kubectl does in its arguments.
func eventObject(o v1.ObjectReference) string {
	kind := strings.ToLower(o.Kind)
	if o.Name == "" {
		return kind
	}
	return kind + "/" + o.Name
}

// eventSource says who has reported an event, and where (formatEventSource).
func eventSource(e *v1.Event) string {
	component := cmp.Or(e.Source.Component, e.ReportingController)
	instance := cmp.Or(e.Source.Host, e.ReportingInstance)
	if instance == "" {
		return component
	}
	return component + ", " + instance
}
