package mirror

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve/objects"
)

// identified returns the object with the UID and the creation time that every object has. The UID is that of the
// object's resource and name, also in another process.
func identified[T objects.Object](o T, resource string, created metav1.Time) T {
	if o.GetUID() == "" {
		o.SetUID(types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(resource+"/"+o.GetNamespace()+"/"+o.GetName())).String()))
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		o.SetCreationTimestamp(created)
	}
	return o
}

// setNamespaces keeps the namespaces that have anything, and the default one.
func (m *Mirror) setNamespaces() {
	names := map[string]bool{metav1.NamespaceDefault: true}
	for _, resource := range slices.AppendSeq([]string{Pods, Services, Events}, maps.Values(definedResources)) {
		m.store.Namespaces(resource, names)
	}
	all := make([]objects.Object, 0, len(names))
	for name := range names {
		all = append(all, identified(&v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelMetadataName: name}},
			Spec:       v1.NamespaceSpec{Finalizers: []v1.FinalizerName{v1.FinalizerKubernetes}},
			Status:     v1.NamespaceStatus{Phase: v1.NamespaceActive},
		}, Namespaces, m.since))
	}
	m.store.Replace(Namespaces, all)
}

// node returns the node as a kubelet would report it: ready, as long as this process serves it.
func (m *Mirror) node() *v1.Node {
	node := m.o.Node.DeepCopy()
	ready := func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }
	if !slices.ContainsFunc(node.Status.Conditions, ready) {
		node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{
			Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		})
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = m.since, m.since
	}
	return identified(node, Nodes, m.since)
}
