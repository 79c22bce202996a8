package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// load turns a document into the object that it says it is.
func (r *reader) load(e *entry) {
	if e.doc.Kind("") != decode.Map {
		e.problems = append(e.problems, notAnObject(e.doc))
		return
	}
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if apiVersion == "" || kind == "" {
		e.problems = append(e.problems, untyped(e.doc)...)
		return
	}
	if load, ok := loaders()[apiVersion+" "+kind]; ok {
		load(r, e)
		return
	}
	r.other(e)
}

// loaders are the kinds that mean something here, by API version and kind.
func loaders() map[string]func(*reader, *entry) {
	return map[string]func(*reader, *entry){
		"v1 Pod":                             (*reader).pod,
		"v1 ReplicationController":           (*reader).replicationController,
		"apps/v1 Deployment":                 (*reader).deployment,
		"apps/v1 ReplicaSet":                 (*reader).replicaSet,
		"apps/v1 StatefulSet":                (*reader).statefulSet,
		"apps/v1 DaemonSet":                  (*reader).daemonSet,
		"batch/v1 Job":                       (*reader).job,
		"batch/v1 CronJob":                   (*reader).cronJob,
		"v1 ConfigMap":                       (*reader).configMap,
		"v1 Secret":                          (*reader).secret,
		"v1 PersistentVolumeClaim":           (*reader).claim,
		"v1 PersistentVolume":                (*reader).persistentVolume,
		"v1 Node":                            (*reader).node,
		"v1 Namespace":                       (*reader).namespace,
		"scheduling.k8s.io/v1 PriorityClass": (*reader).priorityClass,
		"node.k8s.io/v1 RuntimeClass":        (*reader).runtimeClass,
	}
}

func (r *reader) configMap(e *entry) {
	o := &v1.ConfigMap{}
	if r.keep(e, o) {
		r.set.configMaps[key{o.Namespace, o.Name}] = o
	}
}

func (r *reader) secret(e *entry) {
	o := &v1.Secret{}
	if r.keep(e, o) {
		r.set.secrets[key{o.Namespace, o.Name}] = o
	}
}

func (r *reader) priorityClass(e *entry) {
	o := &schedulingv1.PriorityClass{}
	if r.keep(e, o) {
		r.set.priorityClasses[o.Name] = o
	}
}

func (r *reader) runtimeClass(e *entry) {
	o := &nodev1.RuntimeClass{}
	if r.keep(e, o) {
		r.set.runtimeClasses[o.Name] = o
	}
}

func (r *reader) node(e *entry) {
	o := &v1.Node{}
	if !r.keep(e, o) {
		return
	}
	if r.set.Node != nil {
		e.fail("kind", fmt.Sprintf("a second Node; the first is %q", r.set.Node.Name), "pods run on one node: keep one")
		return
	}
	r.set.Node = o
}

// namespace takes over the labels of pod security; all else of a Namespace means nothing
// here.
func (r *reader) namespace(e *entry) {
	o := &v1.Namespace{}
	if !r.decodeInto(e, o) {
		return
	}
	found, errs := r.rules.Namespace(o)
	e.invalid(errs)
	if !found {
		r.skip(e)
		return
	}
	r.register(e, e.kind, o)
}

// keep decodes and validates a supporting object; false means that it cannot be used,
// and neither can what refers to it.
func (r *reader) keep(e *entry, o metav1.Object) bool {
	if r.decodeInto(e, o) {
		r.generateName(e, o)
		e.invalid(r.rules.Object(o))
		if r.register(e, e.kind, o) && !e.failed() {
			return true
		}
	}
	r.broken[object{e.kind, orDefault(e.namespace), e.name}] = true
	return false
}

// generateName gives an object that asks for it a name, as an API server does
// (k8s.io/apiserver/pkg/storage/names). The end of the name is a hash of the document
// instead of chance, so that a second run finds what the first has started.
func (r *reader) generateName(e *entry, o metav1.Object) {
	const most, suffix = 63, 5
	if o.GetName() != "" || o.GetGenerateName() == "" {
		return
	}
	base := o.GetGenerateName()[:min(len(o.GetGenerateName()), most-suffix)]
	content := string(e.doc.JSON())
	r.generated[content]++
	sum := sha256.Sum256(fmt.Append(nil, r.generated[content], content))
	o.SetName(base + hex.EncodeToString(sum[:])[:suffix])
}

// other skips a known kind, with one warning for the whole input. What is left may be
// known to a CustomResourceDefinition that is still to come.
func (r *reader) other(e *entry) {
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if !isSkipped(apiVersion, kind) {
		r.unknown = append(r.unknown, e)
		return
	}
	r.skip(e)
	if group, kind, ok := definedKind(e.doc); ok {
		r.defined[group+" "+kind] = true
	}
}

func (r *reader) skip(e *entry) {
	id := e.doc.APIVersion() + " " + e.doc.ObjectKind()
	if !r.skipped[id] {
		e.warn("kind", e.doc.ObjectKind()+" is not supported and was ignored", "")
	}
	r.skipped[id] = true
}

// rest skips the custom resources of the input and refuses the kinds that are left.
func (r *reader) rest() {
	known := map[string]string{}
	for id := range loaders() {
		apiVersion, kind, _ := strings.Cut(id, " ")
		known[kind] = apiVersion
	}
	for _, e := range r.unknown {
		group, _, _ := strings.Cut(e.doc.APIVersion(), "/")
		if r.defined[group+" "+e.doc.ObjectKind()] {
			r.skip(e)
			continue
		}
		e.problems = append(e.problems, unknownKind(e.doc, known))
	}
}
