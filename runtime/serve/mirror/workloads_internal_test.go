package mirror

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/objects"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// owned returns a pod of the workload with the UID w: "p" has not started, "r" runs, "R" is ready, "s" has succeeded, "f"
// has failed, and "F" has failed for good.
func owned(letter rune, i int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("w-", i), UID: types.UID(fmt.Sprint(string(letter), i)),
		Annotations:     map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(i)},
		OwnerReferences: []metav1.OwnerReference{{UID: "w", Controller: new(true)}},
	}}
	st := &pod.Status
	st.Phase = map[rune]v1.PodPhase{'r': v1.PodRunning, 'R': v1.PodRunning, 's': v1.PodSucceeded, 'f': v1.PodFailed, 'F': v1.PodFailed}[letter]
	if letter == 'p' {
		st.Phase = v1.PodPending
		return pod
	}
	at := func(seconds int) metav1.Time { return metav1.NewTime(time.Unix(int64(1000+seconds), 0)) }
	st.StartTime = new(at(i))
	switch letter {
	case 'R':
		st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	case 's', 'f', 'F':
		st.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at(10 * (i + 1))}}}}
	}
	return pod
}

func allOwned(letters string) (pods []*v1.Pod) {
	for i, letter := range letters {
		pods = append(pods, owned(letter, i))
	}
	return pods
}

// TestJobs: a Job has ended when it is decided, and not before.
func TestJobs(t *testing.T) {
	t.Parallel()
	indexed := func(s *batchv1.JobSpec) { s.CompletionMode = new(batchv1.IndexedCompletion) }
	perIndex := func(s *batchv1.JobSpec) { indexed(s); s.BackoffLimitPerIndex = new(int32(1)) }
	for _, tt := range []struct {
		pods   string
		spec   func(*batchv1.JobSpec)
		change func(pods []*v1.Pod)
		want   string
	}{
		{pods: "", want: "0/0 0 0"},
		{pods: "ppp", want: "3/0 0 0"},
		{pods: "srp", want: "2/0 1 0 from 0"},
		{pods: "sRp", want: "2/1 1 0 from 0"},
		{pods: "sss", want: "0/0 3 0 from 0 to 30 Complete CompletionsReached at 30"},
		{pods: "ss", want: "0/0 2 0 from 0"},
		{pods: "ssf", want: "0/0 2 1 from 0"},
		{pods: "ssF", want: "0/0 2 1 from 0 Failed BackoffLimitExceeded at 30"},
		{pods: "srF", want: "1/0 1 1 from 0"},
		{pods: "FfF", want: "0/0 0 3 from 0"},
		{pods: "FFF", want: "0/0 0 3 from 0 Failed Policy of pod 1 at 30", change: func(pods []*v1.Pod) {
			pods[0].Status.Reason = "Error"
			pods[1].Status.Reason, pods[1].Status.Message = batchv1.JobReasonPodFailurePolicy, "of pod 1"
		}},
		{pods: "sF", spec: func(s *batchv1.JobSpec) { s.Completions = nil }, want: "0/0 1 1 from 0 to 20 Complete CompletionsReached at 20"},
		{pods: "sr", spec: func(s *batchv1.JobSpec) { s.Completions = nil }, want: "1/0 1 0 from 0"},
		{pods: "FF", spec: func(s *batchv1.JobSpec) { s.Completions = nil }, want: "0/0 0 2 from 0 Failed BackoffLimitExceeded at 20"},
		{pods: "", spec: func(s *batchv1.JobSpec) { s.Suspend = new(true) }, want: "0/0 0 0 Suspended JobSuspended at 7"},
		{pods: "srssspss", spec: indexed, want: "2/0 6 0 from 0 done 0,2-4,6,7"},
		{pods: "sfsFssFF", spec: perIndex, want: "0/0 4 4 from 0 done 0,2,4,5 failed 1,3,6,7"},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1007, 0))}, Spec: batchv1.JobSpec{Completions: new(int32(3))}}
		if strings.Contains(tt.want, "done") {
			job.Spec.Completions = new(int32(len(tt.pods)))
		}
		if tt.spec != nil {
			tt.spec(&job.Spec)
		}
		pods := allOwned(tt.pods)
		if tt.change != nil {
			tt.change(pods)
		}
		st := jobStatus(job, pods, func(pod *v1.Pod) bool { return strings.HasPrefix(string(pod.UID), "f") })
		want(t, tt.pods, showJob(st), strings.Replace(tt.want, "Policy", batchv1.JobReasonPodFailurePolicy, 1))
	}
}

func showJob(st batchv1.JobStatus) string {
	text := fmt.Sprintf("%d/%d %d %d", st.Active, *st.Ready, st.Succeeded, st.Failed)
	if st.StartTime != nil {
		text += fmt.Sprint(" from ", st.StartTime.Unix()-1000)
	}
	if st.CompletionTime != nil {
		text += fmt.Sprint(" to ", st.CompletionTime.Unix()-1000)
	}
	for _, c := range st.Conditions {
		text += fmt.Sprintf(" %s %s", c.Type, c.Reason)
		if strings.HasPrefix(c.Message, "of") {
			text += " " + c.Message
		}
		text += fmt.Sprint(" at ", c.LastTransitionTime.Unix()-1000)
	}
	if st.CompletedIndexes != "" {
		text += " done " + st.CompletedIndexes
	}
	if st.FailedIndexes != nil {
		text += " failed " + *st.FailedIndexes
	}
	return text
}

// TestDeployments: a Deployment is available as its controller says, since the pods became so.
func TestDeployments(t *testing.T) {
	t.Parallel()
	of := func(replicas int32, unavailable string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "w"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
		if unavailable != "" {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.Parse(unavailable)), MaxSurge: new(intstr.FromInt32(0))}
		}
		return d
	}
	for _, tt := range []struct {
		d    *appsv1.Deployment
		pods string
		want string
	}{
		{of(2, ""), "RR", "2 of 2 True"},
		{of(2, ""), "Rr", "1 of 2 False"},
		{of(4, "25%"), "RRRr", "3 of 4 True"},
		{of(4, "25%"), "RRrr", "2 of 4 False"},
		{of(1, "0"), "r", "0 of 1 True"}, // without a surge, one has to go first
		{of(0, "1"), "", "0 of 0 True"},
		{of(1, "5"), "", "0 of 0 True"},
		{of(2, ""), "Rs", "1 of 1 False"},
	} {
		st := deploymentStatus(tt.d, count(allOwned(tt.pods)), nil)
		want(t, tt.pods, fmt.Sprintf("%d of %d %s", st.ReadyReplicas, st.Replicas, st.Conditions[0].Status), tt.want)
	}
	before := of(1, "")
	before.Status = deploymentStatus(before, counts{1, 1}, nil)
	before.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(7, 0))
	for n, since := range map[counts]bool{{1, 1}: true, {1, 0}: false} {
		now := deploymentStatus(before, n, before)
		want(t, "still", now.Conditions[0].LastTransitionTime.Unix() == 7, since)
	}
	other := before.DeepCopy()
	other.UID = "other"
	want(t, "of another one", deploymentStatus(before, counts{1, 1}, other).Conditions[0].LastTransitionTime.Unix() == 7, false)
}

// concluded is an object with the status that the mirror gives it.
func concluded[T podspec.Object](t *testing.T, m *Mirror, o T, made map[types.UID][]*v1.Pod) T {
	t.Helper()
	with, ok := m.conclude(o, made).(T)
	if !ok {
		t.Fatalf("of %T", o)
	}
	return with
}

// TestWorkloads: each kind has the pods that it controls, and no others.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	w := metav1.ObjectMeta{Name: "w", UID: "w"}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "w", OwnerReferences: []metav1.OwnerReference{{UID: "cron", Controller: new(true)}}}}
	m := New(Options{Records: record.Open(t.TempDir(), t.TempDir()), Node: &v1.Node{}})
	m.definitions = map[string]seenDefinition{"job": {object: job}, "none": {}}
	pods := allOwned("Rr")
	foreign := owned('R', 7)
	foreign.OwnerReferences[0].Controller = new(false)
	ownerless := owned('R', 8)
	ownerless.OwnerReferences = nil
	var all []objects.Object
	for _, pod := range append(slices.Clone(pods), foreign, ownerless) {
		all = append(all, pod)
	}
	made := madeBy(all)
	rc, rs := &v1.ReplicationController{ObjectMeta: w}, &appsv1.ReplicaSet{ObjectMeta: w}
	sts, ds := &appsv1.StatefulSet{ObjectMeta: w}, &appsv1.DaemonSet{ObjectMeta: w}
	d, cron := &appsv1.Deployment{ObjectMeta: w}, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{UID: "cron"}}
	rc = concluded(t, m, rc, made)
	rs = concluded(t, m, rs, made)
	sts = concluded(t, m, sts, made)
	ds = concluded(t, m, ds, made)
	d = concluded(t, m, d, made)
	job = concluded(t, m, job, made)
	cron = concluded(t, m, cron, made)
	want(t, "controller", fmt.Sprint(rc.Status.Replicas, rc.Status.ReadyReplicas, rc.Status.AvailableReplicas), "2 1 1")
	want(t, "replica set", fmt.Sprint(rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas), "2 1 1")
	want(t, "stateful set", fmt.Sprint(sts.Status.Replicas, sts.Status.ReadyReplicas, sts.Status.UpdatedReplicas), "2 1 2")
	want(t, "daemon set", fmt.Sprint(ds.Status.DesiredNumberScheduled, ds.Status.CurrentNumberScheduled, ds.Status.NumberReady), "1 2 1")
	want(t, "deployment", fmt.Sprint(d.Status.Replicas, d.Status.ReadyReplicas, d.Status.UnavailableReplicas), "2 1 0")
	want(t, "job", fmt.Sprint(job.Status.Active, *job.Status.Ready), "2 1")
	if a := cron.Status.Active; len(a) != 1 || a[0].Name != "w" || cron.Status.LastScheduleTime == nil {
		t.Errorf("cron job: %+v", cron.Status)
	}
	done := madeBy([]objects.Object{owned('s', 0)})
	cron = concluded(t, m, cron, done)
	if a := cron.Status.Active; len(a) != 0 || cron.Status.LastSuccessfulTime == nil {
		t.Errorf("cron job that is done: %+v", cron.Status)
	}
}
