package apiserver

import (
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// eventsV1Resource has the events of events.k8s.io: the same ones, with other names of their fields.
func eventsV1Resource() *resource {
	return &resource{
		APIResource: metav1.APIResource{
			Name: mirror.Events, SingularName: "event", Kind: "Event", Namespaced: true, ShortNames: []string{"ev"}, Verbs: readable, Group: eventsv1.GroupName, Version: "v1",
		},
		list: func() runtime.Object { return &eventsv1.EventList{} }, fields: eventV1Fields, convert: toEventV1,
	}
}

// toEventV1 follows Convert_core_Event_To_v1_Event of pkg/apis/events/v1. Other objects, such as that of a bookmark, stay as
// they are.
func toEventV1(o objects.Object) objects.Object {
	e, ok := o.(*v1.Event)
	if !ok {
		return o
	}
	converted := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		converted.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return converted
}

// eventV1Fields follows AddFieldLabelConversionsForEvent of pkg/apis/events/v1.
func eventV1Fields(o objects.Object) fields.Set {
	e, ok := o.(*v1.Event)
	if !ok { // an empty one, of which the names are wanted
		e = &v1.Event{}
	}
	own := eventFields(e)
	set := fields.Set{"reason": own["reason"], "type": own["type"], "reportingController": own["reportingComponent"]}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		set["regarding."+name] = own["involvedObject."+name]
	}
	return set
}
