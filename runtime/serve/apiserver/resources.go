package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// resource is a resource of the API.
type resource struct {
	metav1.APIResource
	// list returns an empty list of its objects.
	list func() runtime.Object
	// fields returns the fields of an object by which it may be selected, but for its name and namespace; nil for none.
	fields func(objects.Object) fields.Set
	// subresources are those of its objects.
	subresources []subresource
	// review answers a review; nil for a resource that has objects.
	review func(*server, runtime.Object) (runtime.Object, error)
	// compute returns its objects, if no mirror has them.
	compute computation
	// convert returns an object of the mirror as one of this resource; nil for the same.
	convert func(objects.Object) objects.Object
}

// computation returns the objects of a resource that a request is about, or more.
type computation func(s *server, ctx context.Context, q request) ([]objects.Object, error)

func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

func (r *resource) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// converted returns an object of the mirror as one of this resource.
func (r *resource) converted(o objects.Object) objects.Object {
	if r.convert == nil {
		return o
	}
	return r.convert(o)
}

// gv returns the version of the group.
func (r *resource) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

const (
	resourcePods     = mirror.Pods
	subresourceProxy = "proxy"
)

var podsResource = schema.GroupResource{Resource: resourcePods}

// readable are the verbs of resources that nobody changes here.
var readable = metav1.Verbs{"get", "list", "watch"}

// allResources returns the resources, the most important ones of each group first. creates says that pods can be created.
func allResources(creates bool) []*resource {
	core := func(name, singular, kind string, namespaced bool, short ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, SingularName: singular, Kind: kind, Namespaced: namespaced, ShortNames: short, Verbs: readable, Version: "v1"}
	}
	pods := core(resourcePods, "pod", "Pod", true, "po")
	pods.Categories, pods.Verbs = []string{"all"}, slices.Concat(readable, metav1.Verbs{"delete", "deletecollection"})
	if creates {
		pods.Verbs = append(pods.Verbs, "create")
	}
	services := core(mirror.Services, "service", "Service", true, "svc")
	services.Categories = []string{"all"}
	all := []*resource{
		{APIResource: pods, list: func() runtime.Object { return &v1.PodList{} }, fields: selectable(podFields), subresources: podSubresources()},
		{APIResource: services, list: func() runtime.Object { return &v1.ServiceList{} }, fields: selectable(serviceFields)},
		{APIResource: core(mirror.Events, "event", "Event", true, "ev"), list: func() runtime.Object { return &v1.EventList{} }, fields: selectable(eventFields)},
		{
			APIResource: core(mirror.Nodes, "node", "Node", false, "no"), list: func() runtime.Object { return &v1.NodeList{} }, fields: selectable(nodeFields),
			subresources: []subresource{newSubresource(subresourceProxy, "NodeProxyOptions", (*server).proxy, "get")},
		},
		{APIResource: core(mirror.Namespaces, "namespace", "Namespace", false, "ns"), list: func() runtime.Object { return &v1.NamespaceList{} }, fields: selectable(namespaceFields)},
	}
	return slices.Concat(all, definedResources(), []*resource{eventsV1Resource()}, usageResources(), reviewResources())
}

// subresource is a part of an object.
type subresource struct {
	metav1.APIResource
	// serve answers, by verb.
	serve map[string]handler
}

type handler func(s *server, w http.ResponseWriter, r *http.Request, q request)

func newSubresource(name, kind string, serve handler, verbs ...string) subresource {
	sub := subresource{metav1.APIResource{Name: name, Kind: kind, Verbs: verbs}, map[string]handler{}}
	for _, verb := range verbs {
		sub.serve[verb] = serve
	}
	return sub
}

func podSubresources() []subresource {
	eviction := newSubresource("eviction", "Eviction", (*server).evict, "create")
	eviction.Group, eviction.Version = "policy", "v1"
	debuggers := newSubresource("ephemeralcontainers", "Pod", (*server).debug, "get", "patch", "update")
	debuggers.serve["get"] = (*server).get
	return []subresource{
		newSubresource("attach", "PodAttachOptions", (*server).exec, "create", "get"),
		debuggers,
		eviction,
		newSubresource("exec", "PodExecOptions", (*server).exec, "create", "get"),
		newSubresource("log", "Pod", (*server).log, "get"),
		newSubresource("portforward", "PodPortForwardOptions", (*server).portForward, "create", "get"),
		newSubresource("status", "Pod", (*server).get, "get"),
	}
}

// selectable returns a function for all objects of one for a kind.
func selectable[T objects.Object](of func(T) fields.Set) func(objects.Object) fields.Set {
	return func(o objects.Object) fields.Set {
		if one, ok := o.(T); ok {
			return of(one)
		}
		return nil
	}
}

// podFields follows pkg/registry/core/pod ToSelectableFields.
func podFields(pod *v1.Pod) fields.Set {
	return fields.Set{
		"spec.host":     pod.Spec.NodeName, // of old clients (addConversionFuncs of pkg/apis/core/v1)
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "spec.schedulerName": pod.Spec.SchedulerName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName, "spec.hostNetwork": strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase": string(pod.Status.Phase), "status.podIP": pod.Status.PodIP, "status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// eventFields follows pkg/registry/core/event ToSelectableFields.
func eventFields(e *v1.Event) fields.Set {
	of, source := e.InvolvedObject, cmp.Or(e.Source.Component, e.ReportingController)
	return fields.Set{
		"involvedObject.kind": of.Kind, "involvedObject.namespace": of.Namespace, "involvedObject.name": of.Name, "involvedObject.uid": string(of.UID),
		"involvedObject.apiVersion": of.APIVersion, "involvedObject.resourceVersion": of.ResourceVersion, "involvedObject.fieldPath": of.FieldPath,
		"reason": e.Reason, "reportingComponent": e.ReportingController, "source": source, "type": e.Type,
	}
}

// serviceFields follows AddFieldLabelConversionsForService of pkg/apis/core/v1.
func serviceFields(s *v1.Service) fields.Set {
	return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
}

func nodeFields(node *v1.Node) fields.Set {
	return fields.Set{"spec.unschedulable": strconv.FormatBool(node.Spec.Unschedulable)}
}

func namespaceFields(ns *v1.Namespace) fields.Set {
	return fields.Set{"status.phase": string(ns.Status.Phase)}
}
