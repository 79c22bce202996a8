package manifests

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// finish resolves what a pod refers to and gives it its identity.
func (r *reader) finish(e *entry, p podEntry) {
	r.setPriority(e, p)
	r.setRuntimeClass(e, p)
	r.checkClaims(e, p)
	if p.first {
		r.checkRefs(e, p)
		r.checkPullSecrets(e, p)
		r.checkNode(e, p)
		r.checkSecurity(e, p)
	}
	if e.failed() {
		return
	}
	uid, err := r.set.uid(p.pod)
	if err != nil {
		e.fault(p.prefix, err.Error(), "")
		return
	}
	if p.pod.Annotations == nil {
		p.pod.Annotations = map[string]string{}
	}
	p.pod.UID = uid
	p.pod.Annotations[AnnotationHash] = string(uid)
	p.pod.Annotations[AnnotationConfigSource] = "file"
	if e.remote {
		p.pod.Annotations[AnnotationConfigSource] = "http"
	}
	p.pod.Annotations[podspec.AnnotationSource] = e.place()
	p.pod.Status = v1.PodStatus{Phase: v1.PodPending}
	r.set.Pods = append(r.set.Pods, p.pod)
}

// checkNode warns about a pod that is for another node; whether it runs is the
// admission's to say.
func (r *reader) checkNode(e *entry, pe podEntry) {
	here := r.options.NodeName
	if r.set.Node != nil {
		here = r.set.Node.Name
	}
	if name := pe.pod.Spec.NodeName; name != "" && here != "" && name != here {
		e.warn(pe.prefix+"spec.nodeName", fmt.Sprintf("is %q, but this node is %q: the pod will be rejected", name, here), "")
	}
}

// checkSecurity holds the pod to the Pod Security Standards.
func (r *reader) checkSecurity(e *entry, pe podEntry) {
	refused, warned := r.levels.Check(pe.pod)
	if refused != "" {
		e.fault(pe.prefix+"spec", refused, "")
	}
	if warned != "" {
		e.warn(pe.prefix+"spec", warned, "")
	}
}
