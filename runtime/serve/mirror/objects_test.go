package mirror_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

func newService(name string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: "198.51.100.1", Ports: []v1.ServicePort{{Port: 80}}},
	}
}

// TestServices: Services come, change and go, and stay while they are not known.
func TestServices(t *testing.T) {
	t.Parallel()
	var broken bool
	n := newMachine(t)
	m := n.mirror(t, &spy{}, func(o *mirror.Options) {
		services := o.Services
		o.Services = func() ([]*v1.Service, error) {
			if broken {
				return nil, errBroken
			}
			return services()
		}
	})
	f := follow(t, m, mirror.Services)
	want(t, "none", f.changes(), "")
	own := newService("web")
	n.define(own, newService("other"))
	want(t, "defined", f.changes(), "ADDED web\nADDED other")
	want(t, "unchanged", f.changes(), "")
	want(t, "what is defined is not changed", own.ResourceVersion+string(own.UID), "")
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	before, _ := m.Store().Get(mirror.Services, name)
	changed := newService("web")
	changed.Spec.Ports[0].Port = 81
	n.define(changed)
	want(t, "changed", f.changes(), "DELETED other\nMODIFIED web")
	now, _ := m.Store().Get(mirror.Services, name)
	want(t, "UID", now.GetUID(), before.GetUID())
	want(t, "created", now.GetCreationTimestamp(), before.GetCreationTimestamp())
	broken = true
	if err := m.Sync(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	want(t, "unknown", f.seen(), "")
	broken = false
	n.define()
	want(t, "removed", f.changes(), "DELETED web")
}

// TestNamespaces: there are those in which there is anything, and the default one.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	p, m := n.process(t), n.mirror(t, &spy{})
	f := follow(t, m, mirror.Namespaces)
	want(t, "nothing", f.changes(), "ADDED /default")
	pod := newPod("web", "sleep")
	pod.Namespace = "own"
	p.start(t, pod)
	want(t, "a pod", f.changes(), "ADDED /own")
	namespace, _ := m.Store().Get(mirror.Namespaces, types.NamespacedName{Name: "own"})
	service := newService("web")
	service.Namespace = "other"
	n.define(service)
	want(t, "a Service", f.changes(), "ADDED /other")
	n.define()
	want(t, "no Service", f.changes(), "DELETED /other")
	must(t, p.Stop(t.Context(), pod)) // of which events stay
	want(t, "events", f.changes(), "")
	must(t, n.logs().Remove(logsOf(pod)))
	want(t, "nothing any more", f.changes(), "DELETED /own")
	p.start(t, pod)
	want(t, "the pod again", f.changes(), "ADDED /own")
	again, _ := m.Store().Get(mirror.Namespaces, types.NamespacedName{Name: "own"})
	want(t, "UID", again.GetUID(), namespace.GetUID())
	want(t, "all", list(t, m, mirror.Namespaces), "/default\n/own")
	if ns, ok := again.(*v1.Namespace); !ok || ns.Status.Phase != v1.NamespaceActive || ns.Labels[v1.LabelMetadataName] != "own" {
		t.Errorf("namespace %+v", again)
	}
}

// TestNode: there is one, which is ready, and stays as it is.
func TestNode(t *testing.T) {
	t.Parallel()
	given := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine", Labels: map[string]string{"a": "b"}}}
	m := newMachine(t).mirror(t, &spy{}, func(o *mirror.Options) { o.Node = given })
	other := newMachine(t).mirror(t, &spy{}, func(o *mirror.Options) { o.Node = given })
	want(t, "nodes", list(t, m, mirror.Nodes), "/machine")
	name := types.NamespacedName{Name: "machine"}
	o, _ := m.Store().Get(mirror.Nodes, name)
	node, ok := o.(*v1.Node)
	if !ok || len(node.Status.Conditions) != 1 || node.Status.Conditions[0].Type != v1.NodeReady || node.Status.Conditions[0].Status != v1.ConditionTrue {
		t.Fatalf("node %+v", o)
	}
	want(t, "label", node.Labels["a"], "b")
	want(t, "the given one", len(given.Status.Conditions), 0)
	same, _ := other.Store().Get(mirror.Nodes, name)
	want(t, "UID in another process", same.GetUID(), node.UID)
}
