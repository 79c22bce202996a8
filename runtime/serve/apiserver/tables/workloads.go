package tables

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
)

// jobCells follows printJob.
func jobCells(job *batchv1.Job, now time.Time) []any {
	own := []any{job.Name, jobStatus(job), completions(job), jobDuration(job.Status, now), age(job, now)}
	return templateCells(own, job.Spec.Template, job.Spec.Selector)
}

// jobStatus is the first that applies: how the Job has ended, that it is deleted, or what it waits for.
func jobStatus(job *batchv1.Job) string {
	ended := firstCondition(job.Status, batchv1.JobComplete, batchv1.JobFailed)
	switch {
	case ended != "":
		return ended
	case job.DeletionTimestamp != nil:
		return "Terminating"
	}
	if state := firstCondition(job.Status, batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet); state != "" {
		return state
	}
	return "Running"
}

// firstCondition returns the first of the types of which the Job's condition is true, "" for none.
func firstCondition(st batchv1.JobStatus, types ...batchv1.JobConditionType) string {
	for _, of := range types {
		i := slices.IndexFunc(st.Conditions, func(c batchv1.JobCondition) bool { return c.Type == of })
		if i >= 0 && st.Conditions[i].Status == v1.ConditionTrue {
			return string(of)
		}
	}
	return ""
}

// completions says how many pods have succeeded. Without a number of completions, one that succeeds is enough.
func completions(job *batchv1.Job) string {
	if job.Spec.Completions != nil {
		return fmt.Sprintf("%d/%d", job.Status.Succeeded, *job.Spec.Completions)
	}
	if n := ptr.Deref(job.Spec.Parallelism, 0); n > 1 {
		return fmt.Sprintf("%d/1 of %d", job.Status.Succeeded, n)
	}
	return fmt.Sprintf("%d/1", job.Status.Succeeded)
}

// jobDuration is how long a Job took that has completed, or how long any other that was started has taken until now.
func jobDuration(st batchv1.JobStatus, now time.Time) string {
	switch {
	case st.StartTime == nil:
		return ""
	case st.CompletionTime == nil:
		return duration.HumanDuration(now.Sub(st.StartTime.Time))
	}
	return duration.HumanDuration(st.CompletionTime.Sub(st.StartTime.Time))
}

// cronJobCells follows printCronJob.
func cronJobCells(cj *batchv1.CronJob, now time.Time) []any {
	last := none
	if t := cj.Status.LastScheduleTime; t != nil {
		last = since(t.Time, now)
	}
	own := []any{
		cj.Name,
		cj.Spec.Schedule,
		ptr.Deref(cj.Spec.TimeZone, none),
		boolText(cj.Spec.Suspend),
		int64(len(cj.Status.Active)),
		last,
		age(cj, now),
	}
	return templateCells(own, cj.Spec.JobTemplate.Spec.Template, cj.Spec.JobTemplate.Spec.Selector)
}

func boolText(b *bool) string {
	switch {
	case b == nil:
		return unset
	case *b:
		return "True"
	}
	return "False"
}

// deploymentCells follows printDeployment, which formats the selector in another way than those of other kinds.
func deploymentCells(d *appsv1.Deployment, now time.Time) []any {
	selected := "<invalid>"
	if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		selected = selector.String()
	}
	names, images := containers(d.Spec.Template)
	return []any{
		d.Name,
		readyReplicas(d.Status.ReadyReplicas, d.Spec.Replicas),
		int64(d.Status.UpdatedReplicas),
		int64(d.Status.AvailableReplicas),
		age(d, now),
		names,
		images,
		selected,
	}
}

// replicaSetCells follows printReplicaSet.
func replicaSetCells(rs *appsv1.ReplicaSet, now time.Time) []any {
	own := []any{
		rs.Name,
		int64(ptr.Deref(rs.Spec.Replicas, 0)),
		int64(rs.Status.Replicas),
		int64(rs.Status.ReadyReplicas),
		age(rs, now),
	}
	return templateCells(own, rs.Spec.Template, rs.Spec.Selector)
}

// replicationControllerCells follows printReplicationController, whose selector is a set of labels.
func replicationControllerCells(rc *v1.ReplicationController, now time.Time) []any {
	names, images := containers(ptr.Deref(rc.Spec.Template, v1.PodTemplateSpec{}))
	return []any{
		rc.Name,
		int64(ptr.Deref(rc.Spec.Replicas, 0)),
		int64(rc.Status.Replicas),
		int64(rc.Status.ReadyReplicas),
		age(rc, now),
		names,
		images,
		labels.FormatLabels(rc.Spec.Selector),
	}
}

// statefulSetCells follows printStatefulSet.
func statefulSetCells(s *appsv1.StatefulSet, now time.Time) []any {
	names, images := containers(s.Spec.Template)
	return []any{s.Name, readyReplicas(s.Status.ReadyReplicas, s.Spec.Replicas), age(s, now), names, images}
}

// daemonSetCells follows printDaemonSet.
func daemonSetCells(d *appsv1.DaemonSet, now time.Time) []any {
	own := []any{
		d.Name,
		int64(d.Status.DesiredNumberScheduled),
		int64(d.Status.CurrentNumberScheduled),
		int64(d.Status.NumberReady),
		int64(d.Status.UpdatedNumberScheduled),
		int64(d.Status.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector),
		age(d, now),
	}
	return templateCells(own, d.Spec.Template, d.Spec.Selector)
}

func readyReplicas(ready int32, desired *int32) string {
	return fmt.Sprintf("%d/%d", ready, ptr.Deref(desired, 0))
}

// templateCells adds the cells of the columns that withSelector adds.
func templateCells(own []any, t v1.PodTemplateSpec, selector *metav1.LabelSelector) []any {
	names, images := containers(t)
	return append(own, names, images, metav1.FormatLabelSelector(selector))
}

// containers lists the names of the containers and their images (layoutContainerCells).
func containers(t v1.PodTemplateSpec) (names, images string) {
	list := func(of func(v1.Container) string) string {
		all := make([]string, 0, len(t.Spec.Containers))
		for _, c := range t.Spec.Containers {
			all = append(all, of(c))
		}
		return strings.Join(all, ",")
	}
	return list(func(c v1.Container) string { return c.Name }), list(func(c v1.Container) string { return c.Image })
}
