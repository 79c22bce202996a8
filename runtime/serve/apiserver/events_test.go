package apiserver_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// TestEventsV1: clients of events.k8s.io get the same events, in its words.
func TestEventsV1(t *testing.T) {
	t.Parallel()
	m := newMachine()
	at := metav1.NewTime(time.Unix(1000, 0))
	old := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.1", UID: "uid-event"}, InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		Reason: "Started", Message: "Started container main", Type: v1.EventTypeNormal, Source: v1.EventSource{Component: "runonce", Host: "node"},
		FirstTimestamp: at, LastTimestamp: at, Count: 2, ReportingController: "runonce", ReportingInstance: "node", Action: "Starting",
		Series: &v1.EventSeries{Count: 2}, Related: &v1.ObjectReference{Name: "other"},
	}
	m.set(mirror.Events, old, &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job.1"}, InvolvedObject: v1.ObjectReference{Name: "job"}, Reason: "Killing"})
	c := m.client(t).EventsV1().Events("default")
	got, err := c.Get(t.Context(), "web.1", metav1.GetOptions{})
	must(t, err)
	expect := &eventsv1.Event{
		ObjectMeta: old.ObjectMeta, Regarding: old.InvolvedObject, Reason: "Started", Note: "Started container main", Type: v1.EventTypeNormal,
		DeprecatedSource: old.Source, DeprecatedFirstTimestamp: at, DeprecatedLastTimestamp: at, DeprecatedCount: 2,
		ReportingController: "runonce", ReportingInstance: "node", Action: "Starting", Series: &eventsv1.EventSeries{Count: 2}, Related: &v1.ObjectReference{Name: "other"},
	}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Error(diff)
	}
	for selector, names := range map[string]string{
		"": "job.1 web.1 ", "regarding.name=web": "web.1 ", "reason=Killing": "job.1 ", "reportingController=runonce,type=Normal": "web.1 ", "regarding.kind=Node": "",
	} {
		list, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		must(t, err)
		all := ""
		for _, e := range list.Items {
			all += e.Name + " "
		}
		want(t, selector, all, names)
	}
	w, err := c.Watch(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=web", AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	must(t, err)
	defer w.Stop()
	for _, kind := range []watch.EventType{watch.Added, watch.Bookmark} {
		e := <-w.ResultChan()
		if _, ok := e.Object.(*eventsv1.Event); !ok || e.Type != kind {
			t.Errorf("%s %T, want %s", e.Type, e.Object, kind)
		}
	}
	failed(t, "a field of the older API", m.get(t, "/apis/events.k8s.io/v1/events?fieldSelector=involvedObject.name%3Dweb"), 400, "field label not supported: involvedObject.name")

	// The rows are the same, and have the objects of this API.
	var tables [2]metav1.Table
	for i, path := range []string{"/api/v1/events", "/apis/events.k8s.io/v1/events"} {
		a := m.ask(t, "GET", path+"?includeObject=Object", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
		must(t, json.Unmarshal([]byte(a.body), &tables[i]))
	}
	for i, row := range tables[0].Rows {
		if diff := cmp.Diff(row.Cells, tables[1].Rows[i].Cells); diff != "" {
			t.Error(diff)
		}
		var o metav1.TypeMeta
		must(t, json.Unmarshal(tables[1].Rows[i].Object.Raw, &o))
		want(t, "object", o.APIVersion, "events.k8s.io/v1")
	}
}
