package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/check"
	"github.com/runonce/runonce/manifests/claims"
	"github.com/runonce/runonce/manifests/expand"
	"github.com/runonce/runonce/manifests/fields"
)

// templatePath is where most workloads keep their pod template.
const templatePath = "spec.template."

// workload is a decoded workload and what to do with it.
type workload struct {
	kind     string // whose rows of the table apply
	meta     *metav1.ObjectMeta
	template *v1.PodTemplateSpec
	// prefix is the path of template in the document.
	prefix   string
	validate func() field.ErrorList
	pods     func() ([]*v1.Pod, error)
}

func (r *reader) deployment(e *entry) {
	o := &appsv1.Deployment{}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.Deployment(o) },
		pods:     func() ([]*v1.Pod, error) { return expand.Deployment(o) },
	})
}

func (r *reader) replicaSet(e *entry) {
	o := &appsv1.ReplicaSet{}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.ReplicaSet(o) },
		pods:     func() ([]*v1.Pod, error) { return expand.ReplicaSet(o) },
	})
}

func (r *reader) replicationController(e *entry) {
	o := &v1.ReplicationController{Spec: v1.ReplicationControllerSpec{Template: &v1.PodTemplateSpec{}}}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.ReplicationController(o) },
		pods:     func() ([]*v1.Pod, error) { return expand.ReplicationController(o) },
	})
}

func (r *reader) daemonSet(e *entry) {
	o := &appsv1.DaemonSet{}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.DaemonSet(o) },
		pods:     func() ([]*v1.Pod, error) { return expand.DaemonSet(o) },
	})
}

func (r *reader) statefulSet(e *entry) {
	o := &appsv1.StatefulSet{}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.StatefulSet(o) },
		pods: func() ([]*v1.Pod, error) {
			for i := range o.Spec.VolumeClaimTemplates {
				e.claimFaults(claims.Check(&o.Spec.VolumeClaimTemplates[i].Spec, fmt.Sprintf("spec.volumeClaimTemplates[%d].spec.", i)))
			}
			pods, templated, err := expand.StatefulSet(o)
			r.templated = append(r.templated, templated...)
			return pods, err
		},
	})
}

func (r *reader) job(e *entry) {
	o := &batchv1.Job{}
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.Template, prefix: templatePath,
		validate: func() field.ErrorList { return r.rules.Job(o, nameUID("Job", o.Namespace, o.Name)) },
		pods:     func() ([]*v1.Pod, error) { return r.jobPods(e, o, "") },
	})
}

func (r *reader) cronJob(e *entry) {
	o := &batchv1.CronJob{}
	const prefix = "spec.jobTemplate."
	r.workload(e, o, workload{
		kind: e.kind, meta: &o.ObjectMeta, template: &o.Spec.JobTemplate.Spec.Template, prefix: prefix + templatePath,
		validate: func() field.ErrorList {
			r.uses(e, "Job", expand.CronJob(o), prefix)
			return r.rules.CronJob(o)
		},
		pods: func() ([]*v1.Pod, error) {
			switch {
			case !r.options.RunCronJobs:
				e.warn("kind", "a CronJob is not run", "use --run-cronjobs to run its job once")
				return nil, nil
			case o.Spec.Suspend != nil && *o.Spec.Suspend:
				e.warn("spec.suspend", "the CronJob is suspended, so it has no pods", "")
				return nil, nil
			}
			job := expand.CronJob(o)
			e.invalid(r.rules.Job(job, nameUID("Job", o.Namespace, o.Name)), "")
			return r.jobPods(e, job, prefix)
		},
	})
}

func (r *reader) jobPods(e *entry, o *batchv1.Job, prefix string) ([]*v1.Pod, error) {
	spec := &o.Spec
	r.refuseWith(e, spec.ActiveDeadlineSeconds != nil, prefix+"spec.activeDeadlineSeconds", "spec.activeDeadlineSeconds")
	pods, err := expand.Job(o)
	if spec.Completions != nil && int(*spec.Parallelism) < len(pods) {
		e.warn(prefix+"spec.parallelism", fmt.Sprintf("pods start %d at a time, but the node has to have room for all %d", *spec.Parallelism, len(pods)), "")
	}
	return pods, err
}

// refuseWith refuses a field of a workload while the pod's field that it becomes is refused.
func (r *reader) refuseWith(e *entry, used bool, path, podPath string) {
	if row := r.classes.Of(podPath); used && row.Class == fields.Refused {
		e.fault(path, fields.Use{Row: row}.Message(), "")
	}
}

// workload decodes into o, which w speaks of, and adds the pods.
func (r *reader) workload(e *entry, o any, w workload) {
	if !r.decodeInto(e, o) {
		return
	}
	r.generateName(e, w.meta)
	r.uses(e, w.kind, o, "")
	written := v1.Pod{Spec: *w.template.Spec.DeepCopy()}
	written.Annotations = w.template.Annotations
	check.ProfileFromAnnotations(&written)
	r.fieldUses(e, r.classes.Uses(&written), w.prefix)
	e.invalid(w.validate(), "")
	r.register(e, e.kind, w.meta)
	if e.failed() {
		return
	}
	pods, err := w.pods()
	if err != nil {
		e.fault("spec", err.Error(), "")
		return
	}
	if len(pods) == 0 && len(e.faults) == 0 {
		e.warn("spec", "asks for no pod", "")
	}
	for i, p := range pods {
		r.addPod(e, p, w.prefix, i == 0)
	}
}

// uses looks at the fields of a workload outside its pod template.
func (r *reader) uses(e *entry, kind string, o any, prefix string) {
	r.fieldUses(e, r.classes.UsesOf(kind, o), prefix)
}

// fieldUses faults refused fields, and warns once of each field without meaning.
func (r *reader) fieldUses(e *entry, uses []fields.Use, prefix string) {
	warned := map[string]bool{}
	for _, u := range uses {
		switch {
		case u.Row.Class == fields.Refused:
			e.fault(prefix+u.Field, u.Message(), "")
		case !warned[u.Row.Path]:
			e.warn(prefix+u.Field, u.Message(), "")
			warned[u.Row.Path] = true
		}
	}
}
