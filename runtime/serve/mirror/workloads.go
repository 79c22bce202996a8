package mirror

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// madeBy returns the pods of each controller, in their order.
func madeBy(pods []objects.Object) map[types.UID][]*v1.Pod {
	made := map[types.UID][]*v1.Pod{}
	for _, o := range pods {
		pod, ok := o.(*v1.Pod)
		if owner := metav1.GetControllerOf(o); ok && owner != nil {
			made[owner.UID] = append(made[owner.UID], pod)
		}
	}
	return made
}

// conclude returns a workload with the status that its controller would give it, as far as it follows from the pods that
// there are. What has no status is returned as it is.
func (m *Mirror) conclude(defined podspec.Object, made map[types.UID][]*v1.Pod) podspec.Object {
	switch defined.(type) {
	case *v1.ConfigMap, *v1.Secret:
		return defined
	}
	copied, _ := defined.DeepCopyObject().(podspec.Object) // of the same type
	n := count(made[defined.GetUID()])
	switch o := copied.(type) {
	case *v1.ReplicationController:
		o.Status = v1.ReplicationControllerStatus{Replicas: n.active, FullyLabeledReplicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready}
	case *appsv1.ReplicaSet:
		o.Status = appsv1.ReplicaSetStatus{Replicas: n.active, FullyLabeledReplicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready}
	case *appsv1.StatefulSet:
		o.Status = appsv1.StatefulSetStatus{
			Replicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready, CurrentReplicas: n.active, UpdatedReplicas: n.active,
		}
	case *appsv1.DaemonSet:
		o.Status = appsv1.DaemonSetStatus{
			DesiredNumberScheduled: 1, CurrentNumberScheduled: n.active, UpdatedNumberScheduled: n.active,
			NumberReady: n.ready, NumberAvailable: n.ready, NumberUnavailable: 1 - n.ready,
		}
	case *appsv1.Deployment:
		before, _ := m.store.Get(Deployments, podspec.NameOf(o))
		o.Status = deploymentStatus(o, n, before)
	case *batchv1.Job:
		o.Status = jobStatus(o, made[o.UID], m.isUndecided)
	case *batchv1.CronJob:
		o.Status = m.cronJobStatus(o, made)
	}
	return copied
}

// counts are how many pods of a workload have not ended, and how many of these are ready.
type counts struct{ active, ready int32 }

func count(pods []*v1.Pod) (n counts) {
	for _, pod := range pods {
		if podspec.Ended(pod.Status.Phase) {
			continue
		}
		n.active++
		if podspec.Condition(pod.Status, v1.PodReady).Status == v1.ConditionTrue {
			n.ready++
		}
	}
	return n
}

// deploymentStatus follows pkg/controller/deployment: the Deployment is available if all but maxUnavailable of its pods
// are ready. before is what it was, nil for nothing.
func deploymentStatus(d *appsv1.Deployment, n counts, before objects.Object) appsv1.DeploymentStatus {
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	status := appsv1.DeploymentStatus{
		Replicas: n.active, UpdatedReplicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready, UnavailableReplicas: max(wanted-n.ready, 0),
	}
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: v1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.",
	}
	if n.ready < wanted-maxUnavailable(d) {
		available.Status, available.Reason = v1.ConditionFalse, "MinimumReplicasUnavailable"
		available.Message = "Deployment does not have minimum availability."
	}
	available.LastUpdateTime, available.LastTransitionTime = metav1.Now(), metav1.Now()
	if old, ok := before.(*appsv1.Deployment); ok && old.UID == d.UID {
		same := func(c appsv1.DeploymentCondition) bool {
			return c.Type == available.Type && c.Status == available.Status
		}
		if i := slices.IndexFunc(old.Status.Conditions, same); i >= 0 {
			available = old.Status.Conditions[i]
		}
	}
	status.Conditions = []appsv1.DeploymentCondition{available}
	return status
}

// maxUnavailable returns how many pods of the Deployment need not be ready (ResolveFenceposts of
// pkg/controller/deployment/util).
func maxUnavailable(d *appsv1.Deployment) int32 {
	update, wanted := d.Spec.Strategy.RollingUpdate, ptr.Deref(d.Spec.Replicas, 1)
	if update == nil || wanted == 0 {
		return 0
	}
	resolve := func(n *intstr.IntOrString, up bool) int {
		value, _ := intstr.GetScaledValueFromIntOrPercent(n, int(wanted), up) // it is valid, or nil
		return value
	}
	surge, unavailable := resolve(update.MaxSurge, true), resolve(update.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return min(int32(unavailable), wanted)
}

// jobStatus follows pkg/controller/job. Whoever runs the pods retries them: one that has failed and is undecided may
// still succeed.
func jobStatus(job *batchv1.Job, pods []*v1.Pod, undecided func(*v1.Pod) bool) batchv1.JobStatus {
	n := count(pods)
	status := batchv1.JobStatus{Active: n.active, Ready: new(n.ready), UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	succeeded, failed := withPhase(pods, v1.PodSucceeded), withPhase(pods, v1.PodFailed)
	status.Succeeded, status.Failed, status.StartTime = int32(len(succeeded)), int32(len(failed)), firstStart(pods)
	if ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion {
		if status.CompletedIndexes = indexes(succeeded); job.Spec.BackoffLimitPerIndex != nil {
			status.FailedIndexes = new(indexes(failed))
		}
	}
	c, ended := batchv1.JobCondition{Status: v1.ConditionTrue}, lastEnd(pods)
	switch {
	case ptr.Deref(job.Spec.Suspend, false):
		c.Type, c.Reason, c.Message = batchv1.JobSuspended, "JobSuspended", "Job suspended"
		ended = job.CreationTimestamp
	case n.active == 0 && status.Succeeded >= ptr.Deref(job.Spec.Completions, 1):
		c.Type, c.Reason, c.Message = batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"
		status.CompletionTime = &ended
	case n.active == 0 && len(failed) > 0 && !slices.ContainsFunc(failed, undecided):
		c.Type = batchv1.JobFailed
		c.Reason, c.Message = whyFailed(failed)
	default:
		return status
	}
	c.LastProbeTime, c.LastTransitionTime = ended, ended
	status.Conditions = []batchv1.JobCondition{c}
	return status
}

// isUndecided reports whether the pod, which has failed, may run again.
func (m *Mirror) isUndecided(pod *v1.Pod) bool {
	r := m.pods[pod.UID].record
	return r == nil || r.Outcome == nil && r.Failed == nil
}

// whyFailed returns the reason for which a Job has failed: that of a pod that was ended with it, if there is one.
func whyFailed(failed []*v1.Pod) (reason, message string) {
	for _, pod := range failed {
		if podspec.FailedWithJob(pod.Status) && pod.Status.Reason != podspec.ReasonFailureIgnored {
			return pod.Status.Reason, pod.Status.Message
		}
	}
	return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
}

func (m *Mirror) cronJobStatus(cron *batchv1.CronJob, made map[types.UID][]*v1.Pod) (status batchv1.CronJobStatus) {
	for _, seen := range m.definitions {
		job, ok := seen.object.(*batchv1.Job)
		if !ok || !metav1.IsControlledBy(job, cron) {
			continue
		}
		now := jobStatus(job, made[job.UID], m.isUndecided)
		status.LastScheduleTime, status.LastSuccessfulTime = now.StartTime, now.CompletionTime
		if len(now.Conditions) == 0 {
			status.Active = []v1.ObjectReference{{APIVersion: "batch/v1", Kind: "Job", Namespace: job.Namespace, Name: job.Name, UID: job.UID}}
		}
	}
	return status
}

func withPhase(pods []*v1.Pod, phase v1.PodPhase) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return pod.Status.Phase != phase })
}

// firstStart returns when the first of the pods was started, nil if none was.
func firstStart(pods []*v1.Pod) (first *metav1.Time) {
	for _, pod := range pods {
		if t := pod.Status.StartTime; t != nil && (first == nil || t.Before(first)) {
			first = t
		}
	}
	return first
}

// lastEnd returns when the last container of the pods has ended.
func lastEnd(pods []*v1.Pod) (last metav1.Time) {
	for _, pod := range pods {
		for _, cs := range podspec.Statuses(pod.Status) {
			if t := cs.State.Terminated; t != nil && last.Before(&t.FinishedAt) {
				last = t.FinishedAt
			}
		}
	}
	return last
}

// indexes returns the indexes of the pods of an Indexed Job, as its status has them: "0,2-4".
func indexes(pods []*v1.Pod) string {
	var all []int
	for _, pod := range pods {
		if i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation]); err == nil {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	var texts []string
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n] == all[0]+n {
			n++
		}
		text := strconv.Itoa(all[0])
		switch n {
		case 1:
		case 2:
			text = fmt.Sprintf("%d,%d", all[0], all[1])
		default:
			text = fmt.Sprintf("%d-%d", all[0], all[n-1])
		}
		texts, all = append(texts, text), all[n:]
	}
	return strings.Join(texts, ",")
}
