package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/runonce/runonce/internal/podspec"
)

// maxEvents is how many of a pod's events are reported.
const maxEvents = 5

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

// Events returns the last events of the pod, the oldest first, each in a line.
func (p *Pods) Events(ctx context.Context, pod *v1.Pod) ([]string, error) {
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
	var lines []string
	for _, e := range events[max(0, len(events)-maxEvents):] {
		text := fmt.Sprintf("%s %s: %s", e.Type, e.Reason, strings.TrimSpace(e.Message))
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		lines = append(lines, text)
	}
	return lines, nil
}
