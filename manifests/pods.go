package manifests

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func (r *reader) pod(e *entry) step {
	p := &v1.Pod{}
	if !r.decodeInto(e, p) {
		return nil
	}
	return r.podOf(e, p)
}

// podOf checks the pod that the document is.
func (r *reader) podOf(e *entry, p *v1.Pod) step {
	r.checkPodFields(e, p, "")
	dropAssigned(p)
	e.checkOrder(p.ObjectMeta, r.orDefault(p.Namespace), "")
	e.checkPublish(p.ObjectMeta, &p.Spec, "")
	pe := podEntry{pod: p, first: true}
	e.problems = append(e.problems, r.check(e, pe)...)
	return func() { r.addPod(e, pe) }
}

// checkPodFields says which fields of a pod are not supported here.
func (r *reader) checkPodFields(e *entry, p *v1.Pod, prefix string) {
	if !r.options.Cluster {
		e.checkFields(r.fields.uses(p), prefix)
	}
}

func (r *reader) check(e *entry, pe podEntry) Diagnostics {
	return r.rules.CheckPod(e.doc, pe.pod, pe.prefix, pe.first)
}

// addPod keeps a pod of the document.
func (r *reader) addPod(e *entry, pe podEntry) {
	r.register(e, "Pod", pe.pod)
	e.pods = append(e.pods, pe)
}

// dropAssigned clears what only an API server assigns. On a machine there has been a warning about it, and about
// finalizers and owners, which have a meaning on a cluster alone.
func dropAssigned(p *v1.Pod) {
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace,
		Labels: p.Labels, Annotations: p.Annotations,
		Finalizers: p.Finalizers, OwnerReferences: p.OwnerReferences,
	}
	p.Status = v1.PodStatus{}
}

// resolve completes the pods of a document. It only changes its entry, so that this can be done in
// parallel.
func (r *reader) resolve(e *entry) {
	for _, p := range e.pods {
		r.resolvePod(e, p)
	}
}

// resolvePod completes a pod with what it refers to in the input, and gives it its UID.
func (r *reader) resolvePod(e *entry, p podEntry) {
	r.setPriority(e, p)
	refs := references(p.pod)
	if len(e.doc.Wrong()) > 0 {
		if !e.nameless() {
			r.checkRefs(e, p, refs)
		}
		return
	}
	if !r.options.Cluster {
		r.setRuntimeClass(e, p)
		r.checkClaims(e, p, refs)
	}
	r.checkHostname(e, p)
	if p.first {
		r.checkRefs(e, p, refs)
		r.checkSecurity(e, p)
		r.checkDigests(e, p)
	}
	if p.first && !r.options.Cluster {
		r.checkNodeFiles(e, p)
		r.checkPullSecrets(e, p)
		r.checkNode(e, p)
	}
	if e.failed() {
		return
	}
	r.options.setStreams(p.pod)
	uid, err := r.set.uid(p.pod, refs)
	if err != nil {
		e.fail(p.prefix, err.Error(), "")
		return
	}
	p.pod.UID = uid
	if !r.options.Cluster {
		metav1.SetMetaDataAnnotation(&p.pod.ObjectMeta, annotationHash, string(uid))
		metav1.SetMetaDataAnnotation(&p.pod.ObjectMeta, annotationConfigSource, e.configSource())
		if len(e.owners) > 0 {
			p.pod.OwnerReferences = []metav1.OwnerReference{controllerOf(e.owners[0])}
		}
	}
	e.setOrigin(p.pod)
	p.pod.Status = v1.PodStatus{Phase: v1.PodPending}
	e.valid = append(e.valid, p.pod)
}

// setStreams has the only container of a pod work with one who attaches to it.
func (o *Options) setStreams(pod *v1.Pod) {
	if o.Stream && len(pod.Spec.Containers) == 1 {
		c := &pod.Spec.Containers[0]
		c.Stdin, c.StdinOnce, c.TTY = true, true, c.TTY || o.Terminal
	}
}

// setOrigin notes in an object where it comes from.
func (e *entry) setOrigin(o metav1.Object) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[podspec.AnnotationSource] = e.source()
	if annotations[podspec.AnnotationPath] = e.path; e.path == "" {
		delete(annotations, podspec.AnnotationPath)
	}
	o.SetAnnotations(annotations)
}

// withOrigin returns the owners of the pods, which say where they come from.
func (e *entry) withOrigin() []podspec.Object {
	for _, o := range e.owners {
		e.setOrigin(o)
	}
	return e.owners
}

// controllerOf returns the reference to an object from what it has made.
func controllerOf(o podspec.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(o, o.GetObjectKind().GroupVersionKind())
}

// configSource says where the kubelet has pods from.
func (e *entry) configSource() string {
	if e.remote {
		return "http"
	}
	return "file"
}

// checkNode warns about a pod of another node, which admission will reject.
func (r *reader) checkNode(e *entry, pe podEntry) {
	here := r.options.NodeName
	if r.set.Node != nil {
		here = r.set.Node.Name
	}
	if name := pe.pod.Spec.NodeName; name != "" && here != "" && name != here {
		e.warn(pe.prefix+"spec.nodeName", fmt.Sprintf("is %q, but this node is %q: the pod will be rejected", name, here), "")
	}
}

// checkSecurity checks the pod against the Pod Security Standards.
func (r *reader) checkSecurity(e *entry, pe podEntry) {
	refused, warned := r.rules.PodSecurity(pe.pod)
	if refused != "" {
		e.fail(pe.prefix+"spec", refused, "")
	}
	if warned != "" {
		e.warn(pe.prefix+"spec", warned, "")
	}
}
