package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
)

// events returns the events of a pod of the cluster, the oldest first.
func (p *Pods) events(ctx context.Context, pod *v1.Pod) ([]v1.Event, error) {
	list := &v1.EventList{}
	err := p.c.limited(ctx, func() error {
		return p.c.rest.Get().Namespace(pod.Namespace).Resource("events").Param("fieldSelector", "involvedObject.uid="+string(pod.UID)).Do(ctx).Into(list)
	})
	slices.SortStableFunc(list.Items, inOrder)
	return list.Items, err
}

// inOrder compares events by when they have happened. Some know that only to the second: they are
// compared by when they were written.
func inOrder(a, b v1.Event) int {
	if order := lastSeen(a).Truncate(time.Second).Compare(lastSeen(b).Truncate(time.Second)); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}

// lastSeen is when an event has happened for the last time.
func lastSeen(e v1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// firstSeen is when an event has happened for the first time.
func firstSeen(e v1.Event) time.Time {
	if e.FirstTimestamp.IsZero() {
		return e.EventTime.Time
	}
	return e.FirstTimestamp.Time
}

// containerOf returns the container in the path of what an event is about, as in spec.containers{web}.
func containerOf(fieldPath string) string {
	_, name, found := strings.Cut(fieldPath, "{")
	if !found {
		return ""
	}
	return strings.TrimSuffix(name, "}")
}

// podEvent returns an event of the API. It has happened once unless it says otherwise.
func podEvent(e v1.Event) podevent.Event {
	count := int(e.Count)
	if e.Series != nil {
		count = int(e.Series.Count)
	}
	return podevent.Event{
		Type: e.Type, Reason: e.Reason, Message: strings.TrimSpace(e.Message), Container: containerOf(e.InvolvedObject.FieldPath),
		Source: cmp.Or(e.Source.Component, e.ReportingController), Count: max(1, count), FirstSeen: firstSeen(e), LastSeen: lastSeen(e),
	}
}

// Events returns the events of the pod, those that have happened last at the end.
func (p *Pods) Events(ctx context.Context, pod *v1.Pod) ([]podevent.Event, error) {
	there, last := p.cache.get(podspec.NameOf(pod))
	if there == nil {
		there = last
	}
	if !isOf(there, pod) {
		return nil, nil
	}
	events, err := p.events(ctx, there)
	if err != nil {
		return nil, requestError("looking at the pod's events", err)
	}
	all := make([]podevent.Event, 0, len(events))
	for _, e := range events {
		all = append(all, podEvent(e))
	}
	return all, nil
}
