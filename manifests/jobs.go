package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// jobPods returns a pod for each completion of a Job with its defaults, or for each worker where
// it has no number of completions (pkg/controller/job/job_controller.go). A suspended Job has
// no pods.
func jobPods(o *batchv1.Job) ([]*v1.Pod, error) {
	n := *o.Spec.Parallelism
	if o.Spec.Completions != nil && n > 0 {
		n = *o.Spec.Completions
	}
	if o.Spec.Suspend != nil && *o.Spec.Suspend {
		n = 0
	}
	pods, err := podsOf(o, &o.Spec.Template, n)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(podspec.Job{
		Name: o.Name, Completions: o.Spec.Completions, Parallelism: o.Spec.Parallelism, ActiveDeadlineSeconds: o.Spec.ActiveDeadlineSeconds,
		PodFailurePolicy: o.Spec.PodFailurePolicy, BackoffLimit: o.Spec.BackoffLimit,
		BackoffLimitPerIndex: o.Spec.BackoffLimitPerIndex, MaxFailedIndexes: o.Spec.MaxFailedIndexes,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the rules of Job %q: %w", o.Name, err)
	}
	for i, p := range pods {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, podspec.AnnotationJob, string(text))
		if o.Spec.ActiveDeadlineSeconds != nil && p.Spec.ActiveDeadlineSeconds == nil {
			p.Spec.ActiveDeadlineSeconds = new(*o.Spec.ActiveDeadlineSeconds)
		}
		if o.Spec.CompletionMode != nil && *o.Spec.CompletionMode == batchv1.IndexedCompletion {
			setIndex(p, i)
		}
	}
	return pods, nil
}

// setIndex sets the index of a pod of an Indexed Job (pkg/controller/job/indexed_job_utils.go).
// With its name as hostname it can be found by DNS where a Service of the subdomain exists.
func setIndex(p *v1.Pod, i int) {
	p.Spec.Hostname = p.Name
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, batchv1.JobCompletionIndexAnnotation, strconv.Itoa(i))
	metav1.SetMetaDataLabel(&p.ObjectMeta, batchv1.JobCompletionIndexAnnotation, strconv.Itoa(i))
	const name = "JOB_COMPLETION_INDEX"
	for _, c := range podspec.Containers(p) {
		if slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == name }) {
			continue
		}
		c.Env = append(c.Env, v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
		}}})
	}
}

// nextJob returns the Job that a CronJob would create next, under the CronJob's name.
func nextJob(o *batchv1.CronJob) *batchv1.Job {
	meta := *o.Spec.JobTemplate.ObjectMeta.DeepCopy()
	meta.Namespace, meta.Name = o.Namespace, o.Name
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta,
		Spec:       *o.Spec.JobTemplate.Spec.DeepCopy(),
	}
}
