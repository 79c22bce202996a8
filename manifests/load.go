package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// step is a part of the work on a document; nil is nothing.
type step func()

// load decodes a document and checks it by itself. It only changes the document's entry, so that
// documents can be loaded in parallel. It returns what depends on the documents before this one:
// adding it to the set, the checks of its name and of what it generates, or everything if its own
// name has to be generated.
func (r *reader) load(e *entry) step {
	if e.doc.Kind("") != decode.Map {
		e.problems = append(e.problems, notAnObject(e.doc))
		return nil
	}
	if load, ok := formats()[r.options.Format]; ok {
		return load(r, e)
	}
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if apiVersion == "" || kind == "" {
		e.problems = append(e.problems, untyped(e.doc)...)
		return nil
	}
	load, ok := clusterLoaders()[apiVersion+" "+kind]
	if !ok || !r.options.Cluster {
		load, ok = loaders()[apiVersion+" "+kind]
	}
	switch {
	case !ok:
		return func() { r.other(e) }
	case e.name != "" || e.doc.Text("metadata.generateName") == "":
		return load(r, e)
	}
	return func() {
		r.generateName(e)
		if rest := load(r, e); rest != nil {
			rest()
		}
	}
}

// loaders are the supported kinds, by API version and kind.
var loaders = sync.OnceValue(func() map[string]func(*reader, *entry) step {
	return map[string]func(*reader, *entry) step{
		"v1 Pod":                             (*reader).pod,
		"v1 ReplicationController":           (*reader).replicationController,
		"apps/v1 Deployment":                 (*reader).deployment,
		"apps/v1 ReplicaSet":                 (*reader).replicaSet,
		"apps/v1 StatefulSet":                (*reader).statefulSet,
		"apps/v1 DaemonSet":                  (*reader).daemonSet,
		"batch/v1 Job":                       (*reader).job,
		"batch/v1 CronJob":                   (*reader).cronJob,
		"v1 ConfigMap":                       loadObject[v1.ConfigMap],
		"v1 Secret":                          loadObject[v1.Secret],
		"v1 PersistentVolumeClaim":           (*reader).claim,
		"v1 PersistentVolume":                (*reader).persistentVolume,
		"v1 Node":                            (*reader).node,
		"v1 Service":                         (*reader).service,
		"v1 Namespace":                       (*reader).namespace,
		"scheduling.k8s.io/v1 PriorityClass": loadObject[schedulingv1.PriorityClass],
		"node.k8s.io/v1 RuntimeClass":        loadObject[nodev1.RuntimeClass],
	}
})

// clusterLoaders are the kinds that only a cluster has a use for, or another one.
var clusterLoaders = sync.OnceValue(func() map[string]func(*reader, *entry) step {
	return map[string]func(*reader, *entry) step{
		"v1 Namespace":      passObject[v1.Namespace],
		"v1 ServiceAccount": passObject[v1.ServiceAccount],
		"v1 Service":        passObject[v1.Service],
		"v1 Node":           func(r *reader, e *entry) step { return func() { r.ignore(e) } },
	}
})

// passObject decodes an object that the API server alone validates.
func passObject[T any, P interface {
	*T
	metav1.Object
}](r *reader, e *entry) step {
	o := P(new(T))
	if !r.decodeInto(e, o) {
		return nil
	}
	if e.kind != kindNamespace {
		r.rules.SetNamespace(o)
	}
	return func() {
		if r.register(e, e.kind, o) && !e.failed() {
			r.put(e, e.kind, o)
		}
	}
}

// loadObject decodes an object that pods refer to.
func loadObject[T any, P interface {
	*T
	metav1.Object
}](r *reader, e *entry) step {
	return r.keep(e, P(new(T)), func() {})
}

func (r *reader) node(e *entry) step {
	o := &v1.Node{}
	return r.keep(e, o, func() {
		if first := r.set.Node; first != nil {
			at := r.seen[object{kind: e.kind, name: first.Name}].source()
			e.fail("kind", fmt.Sprintf("a second Node; the first is %q at %s", first.Name, at), "pods run on one node: keep one")
			return
		}
		r.set.Node = o
	})
}

// namespace applies the labels of pod security; everything else in a Namespace is ignored.
func (r *reader) namespace(e *entry) step {
	o := &v1.Namespace{}
	if !r.decodeInto(e, o) {
		return nil
	}
	return func() {
		found, errs := r.rules.Namespace(o)
		e.invalid(errs)
		if !found {
			r.ignore(e)
			return
		}
		r.register(e, e.kind, o)
	}
}

// keep decodes and validates an object that pods refer to. Then it adds it to the set and calls
// kept, or notes that it cannot be used and neither can what refers to it.
func (r *reader) keep(e *entry, o metav1.Object, kept func()) step {
	broken := func() { r.broken[object{e.kind, r.orDefault(e.namespace), e.name}] = true }
	if !r.decodeInto(e, o) {
		return broken
	}
	e.invalid(r.rules.Object(o))
	return func() {
		if !r.register(e, e.kind, o) || e.failed() {
			broken()
			return
		}
		r.put(e, e.kind, o)
		kept()
	}
}

// put adds an object to the set. It says where it comes from.
func (r *reader) put(e *entry, kind string, o metav1.Object) {
	r.set.objects[object{kind, o.GetNamespace(), o.GetName()}] = o
	e.setOrigin(o)
}

// checkBroken notes when an object that a pod refers to has errors of its own.
func (r *reader) checkBroken(e *entry, field string, id object) bool {
	id.namespace = r.orDefault(id.namespace)
	if r.broken[id] {
		e.fail(field, fmt.Sprintf("%s %q has errors", id.kind, id.name), "")
	}
	return r.broken[id]
}

const (
	// maxGenerated is how long a generated name may be.
	maxGenerated = 63
	// hashLength is how much of it is a hash, at its end.
	hashLength = 5
)

// generateName gives an object with a generateName a name, as an API server does
// (k8s.io/apiserver/pkg/storage/names). The name ends in a hash of the document instead of
// random letters, so that a second run finds what the first has started. It depends on the
// documents before.
func (r *reader) generateName(e *entry) {
	base, content := e.doc.Text("metadata.generateName"), string(e.doc.JSON())
	for range 100 {
		r.generated[content]++
		sum := sha256.Sum256(fmt.Append(nil, r.generated[content], content))
		e.generated = base[:min(len(base), maxGenerated-hashLength)] + hex.EncodeToString(sum[:])[:hashLength]
		if r.seen[object{e.kind, r.orDefault(e.namespace), e.generated}] == nil && r.seen[object{kind: e.kind, name: e.generated}] == nil {
			return
		}
	}
}

// other refuses a known kind, or ignores it with one warning for the whole input. The other kinds may be
// defined by a CustomResourceDefinition further down.
func (r *reader) other(e *entry) {
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if !isIgnored(apiVersion, kind) {
		r.unknown = append(r.unknown, e)
		return
	}
	if reason, hint := refusedKind(apiVersion, kind); reason != "" && !r.options.Cluster {
		e.fail("kind", kind+" is not supported: "+reason, hint)
		return
	}
	r.ignore(e)
	if group, kind, ok := definedKind(e.doc); ok {
		r.defined[group+" "+kind] = true
	}
}

func (r *reader) ignore(e *entry) {
	id := e.doc.APIVersion() + " " + e.doc.ObjectKind()
	if !r.ignored[id] {
		e.warn("kind", e.doc.ObjectKind()+" is not supported and was ignored", "")
	}
	r.ignored[id] = true
}

// checkUnknown ignores the custom resources of the input and rejects the remaining unknown kinds.
func (r *reader) checkUnknown() {
	known := map[string]string{}
	for id := range loaders() {
		apiVersion, kind, _ := strings.Cut(id, " ")
		known[kind] = apiVersion
	}
	for _, e := range r.unknown {
		group, _, _ := strings.Cut(e.doc.APIVersion(), "/")
		if r.defined[group+" "+e.doc.ObjectKind()] {
			r.ignore(e)
			continue
		}
		e.problems = append(e.problems, unknownKind(e.doc, known))
	}
}
