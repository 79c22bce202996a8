package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podevent"
)

// TestPodEvent: both kinds of events of the API say how often and when something has happened.
func TestPodEvent(t *testing.T) {
	t.Parallel()
	first, last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)
	event := func(container string, count int, last time.Time) podevent.Event {
		return podevent.Event{Type: "Warning", Reason: "BackOff", Message: "again", Container: container, Count: count, FirstSeen: first, LastSeen: last}
	}
	for name, c := range map[string]struct {
		change func(e *v1.Event)
		want   podevent.Event
	}{
		"of the kubelet": {func(e *v1.Event) {
			e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.NewTime(first), metav1.NewTime(last), 3
			e.InvolvedObject.FieldPath = "spec.containers{web}"
		}, event("web", 3, last)},
		"of an init container": {func(e *v1.Event) {
			e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.NewTime(first), metav1.NewTime(first), 1
			e.InvolvedObject.FieldPath = "spec.initContainers{setup}"
		}, event("setup", 1, first)},
		"of the scheduler": {func(e *v1.Event) { e.EventTime = metav1.NewMicroTime(first) }, event("", 1, first)},
		"a series": {func(e *v1.Event) {
			e.EventTime = metav1.NewMicroTime(first)
			e.Series = &v1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(last)}
		}, event("", 7, last)},
	} {
		e := v1.Event{Type: "Warning", Reason: "BackOff", Message: " again\n"}
		c.change(&e)
		if diff := cmp.Diff(c.want, podEvent(e)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
