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
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/check"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/kinds"
)

// load turns a document into the object that it says it is.
func (r *reader) load(e *entry) {
	if e.doc.Kind("") != decode.Map {
		e.faults = append(e.faults, kinds.NotAnObject(e.doc))
		return
	}
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if apiVersion == "" || kind == "" {
		e.faults = append(e.faults, kinds.Untyped(e.doc)...)
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
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.ConfigMap(o) }) {
		r.set.configMaps[key{o.Namespace, o.Name}] = o
	}
}

func (r *reader) secret(e *entry) {
	o := &v1.Secret{}
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.Secret(o) }) {
		r.set.secrets[key{o.Namespace, o.Name}] = o
	}
}

func (r *reader) priorityClass(e *entry) {
	o := &schedulingv1.PriorityClass{}
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.PriorityClass(o) }) {
		r.set.priorityClasses[o.Name] = o
	}
}

func (r *reader) runtimeClass(e *entry) {
	o := &nodev1.RuntimeClass{}
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.RuntimeClass(o) }) {
		r.set.runtimeClasses[o.Name] = o
	}
}

func (r *reader) node(e *entry) {
	o := &v1.Node{}
	if !r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.Node(o) }) {
		return
	}
	if r.set.Node != nil {
		e.fault("kind", fmt.Sprintf("a second Node; the first is %q", r.set.Node.Name), "pods run on one node: keep one")
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
	found, errs := r.levels.Namespace(o)
	e.invalid(errs, "")
	if !found {
		r.skip(e)
		return
	}
	r.register(e, e.kind, &o.ObjectMeta)
}

// keep decodes and validates a supporting object; false means that it cannot be used,
// and neither can what refers to it.
func (r *reader) keep(e *entry, o any, meta *metav1.ObjectMeta, validate func() field.ErrorList) bool {
	if r.decodeInto(e, o) {
		r.generateName(e, meta)
		e.invalid(validate(), "")
		if r.register(e, e.kind, meta) && !e.failed() {
			return true
		}
	}
	r.broken[object{e.kind, orDefault(e.namespace), e.name}] = true
	return false
}

func (r *reader) pod(e *entry) {
	p := &v1.Pod{}
	if !r.decodeInto(e, p) {
		return
	}
	r.generateName(e, &p.ObjectMeta)
	check.ProfileFromAnnotations(p)
	r.fieldUses(e, r.classes.Uses(p), "")
	dropAssigned(p)
	r.addPod(e, p, "", true)
}

// addPod holds a pod against Kubernetes' rules and ours. Its fields stand below prefix in
// the document; first is false for further pods of the same template.
func (r *reader) addPod(e *entry, p *v1.Pod, prefix string, first bool) {
	errs, warnings := r.rules.Pod(p)
	e.invalid(check.PodErrors(errs, p), prefix)
	if first {
		for _, w := range warnings {
			if strings.Contains(w.Field, ".resources.requests[") && !e.doc.Has(prefix+w.Field) {
				continue // made from the limit, of which the same was said
			}
			e.warn(prefix+w.Field, w.Message, check.WarningHint(w.Message))
		}
		e.faults = append(e.faults, check.Pod(e.doc, p, prefix)...)
	}
	r.register(e, "Pod", &p.ObjectMeta)
	e.pods = append(e.pods, podEntry{p, prefix, first})
}

// generateName gives an object that asks for it a name, as an API server does
// (k8s.io/apiserver/pkg/storage/names). The end of the name is a hash of the document
// instead of chance, so that a second run finds what the first has started.
func (r *reader) generateName(e *entry, meta *metav1.ObjectMeta) {
	const most, suffix = 63, 5
	if meta.Name != "" || meta.GenerateName == "" {
		return
	}
	base := meta.GenerateName[:min(len(meta.GenerateName), most-suffix)]
	content := string(e.doc.JSON())
	r.generated[content]++
	sum := sha256.Sum256(fmt.Append(nil, r.generated[content], content))
	meta.Name = base + hex.EncodeToString(sum[:])[:suffix]
}

// dropAssigned clears what only an API server assigns, which has been warned about.
func dropAssigned(p *v1.Pod) {
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace,
		Labels: p.Labels, Annotations: p.Annotations,
	}
	p.Status = v1.PodStatus{}
}

// other skips a known kind, with one warning for the whole input. What is left may be
// known to a CustomResourceDefinition that is still to come.
func (r *reader) other(e *entry) {
	apiVersion, kind := e.doc.APIVersion(), e.doc.ObjectKind()
	if !kinds.Skipped(apiVersion, kind) {
		r.unknown = append(r.unknown, e)
		return
	}
	r.skip(e)
	if group, kind, ok := kinds.Defined(e.doc); ok {
		r.defined[group+" "+kind] = true
	}
}

func (r *reader) skip(e *entry) {
	id := e.doc.APIVersion() + " " + e.doc.ObjectKind()
	if !r.skipped[id] {
		e.warn("kind", e.doc.ObjectKind()+" has no meaning here, and is skipped", "")
	}
	r.skipped[id] = true
}

// rest skips the custom resources of the input and faults the kinds that are left.
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
		e.faults = append(e.faults, kinds.Unknown(e.doc, known))
	}
}
