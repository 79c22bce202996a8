package manifests

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// The paths of a workload's pod template and of a CronJob's Job template.
const (
	templatePath    = "spec.template."
	jobTemplatePath = "spec.jobTemplate."
)

// workload is a workload to decode, and the function that returns its pods then.
type workload struct {
	object   podspec.Object
	template *v1.PodTemplateSpec
	// prefix is the path of template in the document.
	prefix string
	pods   func() ([]*v1.Pod, error)
}

func (r *reader) deployment(e *entry) step {
	o := &appsv1.Deployment{}
	return r.workload(e, workload{o, &o.Spec.Template, templatePath, func() ([]*v1.Pod, error) {
		return podsOf(o, &o.Spec.Template, *o.Spec.Replicas)
	}})
}

func (r *reader) replicaSet(e *entry) step {
	o := &appsv1.ReplicaSet{}
	return r.workload(e, workload{o, &o.Spec.Template, templatePath, func() ([]*v1.Pod, error) {
		return podsOf(o, &o.Spec.Template, *o.Spec.Replicas)
	}})
}

func (r *reader) replicationController(e *entry) step {
	o := &v1.ReplicationController{Spec: v1.ReplicationControllerSpec{Template: &v1.PodTemplateSpec{}}}
	return r.workload(e, workload{o, o.Spec.Template, templatePath, func() ([]*v1.Pod, error) {
		return podsOf(o, o.Spec.Template, *o.Spec.Replicas)
	}})
}

func (r *reader) daemonSet(e *entry) step {
	o := &appsv1.DaemonSet{}
	return r.workload(e, workload{o, &o.Spec.Template, templatePath, func() ([]*v1.Pod, error) { return daemonSetPods(o) }})
}

func (r *reader) statefulSet(e *entry) step {
	o := &appsv1.StatefulSet{}
	return r.workload(e, workload{o, &o.Spec.Template, templatePath, func() ([]*v1.Pod, error) {
		for i := range o.Spec.VolumeClaimTemplates {
			r.checkClaim(e, &o.Spec.VolumeClaimTemplates[i].Spec, fmt.Sprintf("spec.volumeClaimTemplates[%d].spec.", i))
		}
		pods, templated, err := statefulSetPods(o)
		e.templated = templated
		return pods, err
	}})
}

func (r *reader) job(e *entry) step {
	o := &batchv1.Job{}
	return r.workload(e, workload{o, &o.Spec.Template, templatePath, func() ([]*v1.Pod, error) { return r.jobPods(e, o, "") }})
}

func (r *reader) cronJob(e *entry) step {
	o := &batchv1.CronJob{}
	return r.workload(e, workload{o, &o.Spec.JobTemplate.Spec.Template, jobTemplatePath + templatePath, func() ([]*v1.Pod, error) {
		switch {
		case !r.options.RunCronJobs:
			e.warn("kind", "a CronJob is not run", "use --run-cronjobs to run its job once")
			return nil, nil
		case o.Spec.Suspend != nil && *o.Spec.Suspend:
			e.warn("spec.suspend", "the CronJob is suspended, so it has no pods", "")
			return nil, nil
		}
		job := nextJob(o)
		job.UID = r.nameUID("Job", job.Namespace, job.Name)
		job.OwnerReferences = []metav1.OwnerReference{controllerOf(o)}
		e.invalid(r.rules.Object(job))
		e.owners = []podspec.Object{job}
		return r.jobPods(e, job, jobTemplatePath)
	}})
}

func (r *reader) jobPods(e *entry, o *batchv1.Job, prefix string) ([]*v1.Pod, error) {
	pods, err := jobPods(o)
	if !r.options.Cluster && o.Spec.Completions != nil && int(*o.Spec.Parallelism) < len(pods) {
		e.warn(prefix+"spec.parallelism", fmt.Sprintf("%d pods run at a time, but the node needs enough resources for all %d", *o.Spec.Parallelism, len(pods)), "")
	}
	return pods, err
}

// workload decodes a workload and its pods, and adds both.
func (r *reader) workload(e *entry, w workload) step {
	if !r.decodeInto(e, w.object) {
		return nil
	}
	if o, ok := w.object.(*v1.ReplicationController); ok && o.Spec.Template != nil {
		w.template = o.Spec.Template // may be another one after errors
	}
	r.checkWorkload(e, w)
	own := e.problems
	pods := r.podsOf(e, w)
	e.owners = append(e.owners, w.object)
	all := e.problems
	return func() {
		e.problems = slices.Clip(own)
		if r.register(e, e.kind, w.object); e.failed() {
			e.templated = nil
			return
		}
		e.problems = all
		for _, pe := range pods {
			r.addPod(e, pe)
		}
	}
}

// checkWorkload sets the defaults of a workload and checks it, without the pods.
func (r *reader) checkWorkload(e *entry, w workload) {
	e.checkFields(r.fields.usesOf(e.kind, w.object), "")
	if o, ok := w.object.(*batchv1.CronJob); ok {
		e.checkFields(r.fields.usesOf("Job", nextJob(o)), jobTemplatePath)
	}
	r.checkPodFields(e, &v1.Pod{Spec: w.template.Spec}, w.prefix)
	e.checkOrder(w.template.ObjectMeta, r.orDefault(w.object.GetNamespace()), w.prefix)
	e.checkPublish(w.template.ObjectMeta, &w.template.Spec, w.prefix)
	e.checkWorkloadOrder(w.object, w.prefix)
	w.object.SetUID(r.nameUID(e.kind, w.object.GetNamespace(), w.object.GetName()))
	e.invalid(r.rules.Object(w.object))
}

// podsOf returns the pods of a workload, checked. One with errors has none.
func (r *reader) podsOf(e *entry, w workload) []podEntry {
	if e.failed() {
		return nil
	}
	pods, err := w.pods()
	if err != nil {
		e.fail("spec", err.Error(), "")
		return nil
	}
	if len(pods) == 0 && len(e.problems) == 0 {
		e.warn("spec", "has no pods", "")
	}
	checked := make([]podEntry, len(pods))
	for i, p := range pods {
		checked[i] = podEntry{p, w.prefix, i == 0}
		e.problems = append(e.problems, r.check(e, checked[i])...)
	}
	return checked
}

// checkFields rejects refused fields, and warns once about each ignored field.
func (e *entry) checkFields(uses []fieldUse, prefix string) {
	warned := map[string]bool{}
	for _, u := range uses {
		switch {
		case u.Refused:
			e.fail(prefix+u.Field, u.Message, "")
		case !warned[u.Row]:
			e.warn(prefix+u.Field, u.Message, "")
			warned[u.Row] = true
		}
	}
}
