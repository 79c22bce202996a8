package goal_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce/goal"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func running(name string, ready bool, ran time.Duration) v1.ContainerStatus {
	started := true
	return v1.ContainerStatus{Name: name, Ready: ready, Started: &started, State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ran))},
	}}
}

func starting(name string) v1.ContainerStatus {
	cs := running(name, false, time.Minute)
	no := false
	cs.Started = &no
	return cs
}

func ended(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
}

func waiting(name, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func podReady(ok v1.ConditionStatus, reason, message string) []v1.PodCondition {
	return []v1.PodCondition{{Type: v1.PodReady, Status: ok, Reason: reason, Message: message}}
}

func newPod(policy v1.RestartPolicy, inits []v1.Container, names ...string) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, InitContainers: inits}}
	for _, n := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: n})
	}
	return pod
}

func TestLook(t *testing.T) {
	t.Parallel()
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	plain, sidecar := v1.Container{Name: "i"}, v1.Container{Name: "s", RestartPolicy: &always}
	both := []v1.Container{plain, sidecar}
	backOff := waiting("a", "CrashLoopBackOff", "back-off 20s")
	backOff.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "out of memory\n"}
	late, early := ended("b", 4), ended("a", 5)
	late.State.Terminated.FinishedAt, early.State.Terminated.FinishedAt = metav1.NewTime(now), metav1.NewTime(now.Add(-time.Second))
	for _, c := range []struct {
		name   string
		until  goal.Until
		settle time.Duration
		pod    *v1.Pod
		status v1.PodStatus
		want   goal.View
	}{
		{
			name: "running", until: goal.UntilRunning, pod: newPod("", nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0), running("b", false, 0)}},
			want:   goal.View{Standing: goal.Running},
		},
		{
			name: "an init container with a policy of its own has failed", until: goal.UntilRunning,
			pod:    newPod(v1.RestartPolicyAlways, []v1.Container{{Name: "i", RestartPolicy: &never}}, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("i", 5)}, ContainerStatuses: []v1.ContainerStatus{waiting("a", "PodInitializing", "")}},
			want:   goal.View{Standing: goal.Failed, Ended: true, Reason: "Error", Message: `init container "i" exited with code 5`},
		},
		{
			name: "only a sidecar is left to end", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, []v1.Container{sidecar}, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{running("s", true, time.Minute)},
				ContainerStatuses: []v1.ContainerStatus{ended("a", 3)},
			},
			want: goal.View{Reason: "Error", Message: `container "a" exited with code 3`},
		},
		{
			name: "one of two", until: goal.UntilRunning, pod: newPod("", nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0), waiting("b", "ImagePullBackOff", "no route")}},
			want:   goal.View{Reason: "ImagePullBackOff", Message: `container "b" waits: ImagePullBackOff: no route`},
		},
		{
			name: "no status yet", until: goal.UntilRunning, pod: newPod("", nil, "a"), status: v1.PodStatus{Phase: v1.PodPending},
			want: goal.View{Reason: "ContainerCreating", Message: `container "a" has not been started`},
		},
		{
			name: "crash loop", until: goal.UntilRunning, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{backOff}},
			want: goal.View{
				Reason:  "CrashLoopBackOff",
				Message: `container "a" waits: CrashLoopBackOff: back-off 20s; before that it exited with code 137 (OOMKilled): out of memory`,
			},
		},
		{
			name: "exited 0 under Always runs again", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyAlways, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   goal.View{Reason: "Error", Message: `container "a" exited with code 0`},
		},
		{
			name: "exited 0 under Never beside one that runs", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0), running("b", true, 0)}},
			want:   goal.View{Standing: goal.Running},
		},
		{
			name: "ready beside one that has exited 0", until: goal.UntilReady, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0), running("b", true, 0)}},
			want:   goal.View{Standing: goal.Ready},
		},
		{
			name: "failed under Never beside one that runs", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 3), running("b", true, 0)}},
			want:   goal.View{Standing: goal.Failed, Ended: true, Reason: "Error", Message: `container "a" exited with code 3`},
		},
		{
			name: "failed under Never, the run waits for the others", until: goal.UntilCompleted, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 3), running("b", true, 0)}},
			want:   goal.View{Reason: "Error", Message: `container "a" exited with code 3`},
		},
		{
			name: "completed waits for the end", until: goal.UntilCompleted, pod: newPod(v1.RestartPolicyOnFailure, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)}},
			want:   goal.View{Reason: "PodNotCompleted", Message: `still running: "a"`},
		},
		{
			name: "completed under Always is ready", until: goal.UntilCompleted, pod: newPod(v1.RestartPolicyAlways, nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
				Conditions: podReady(v1.ConditionTrue, "", ""),
			},
			want: goal.View{Standing: goal.Ready},
		},
		{
			name: "not ready", until: goal.UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0)}},
			want:   goal.View{Reason: "ContainersNotReady", Message: `container "a" runs but is not ready`},
		},
		{
			name: "not ready, and why", until: goal.UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0)},
				Conditions: []v1.PodCondition{{Type: v1.ContainersReady, Message: "the kubelet's words; the probe's"}},
			},
			want: goal.View{Reason: "ContainersNotReady", Message: `container "a" runs but is not ready: the probe's`},
		},
		{
			name: "containers ready, the pod not", until: goal.UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
				Conditions: podReady(v1.ConditionFalse, "ReadinessGatesNotReady", "gate missing"),
			},
			want: goal.View{Reason: "ReadinessGatesNotReady", Message: "gate missing"},
		},
		{
			name: "settling", until: goal.UntilRunning, settle: time.Second, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 300*time.Millisecond)}},
			want:   goal.View{Reason: "Settling", Message: `container "a" has run for less than 1s`, Again: 700 * time.Millisecond},
		},
		{
			name: "settling with a clock that runs ahead", until: goal.UntilRunning, settle: time.Second, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, -time.Hour)}},
			want:   goal.View{Reason: "Settling", Message: `container "a" has run for less than 1s`, Again: time.Second},
		},
		{
			name: "succeeded", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   goal.View{Standing: goal.Succeeded, Ended: true},
		},
		{
			name: "failed: the one that ended first is named", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "b", "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{late, early}},
			want:   goal.View{Standing: goal.Failed, Ended: true, Reason: "Error", Message: `container "a" exited with code 5`},
		},
		{
			name: "failed for the pod's own reason", until: goal.UntilRunning, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "too long", ContainerStatuses: []v1.ContainerStatus{ended("a", 137)}},
			want: goal.View{
				Standing: goal.Failed, Ended: true, Reason: "DeadlineExceeded", Message: `too long; container "a" exited with code 137`,
			},
		},
		{
			name: "init container fails", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, both, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("i", 9)}},
			want:   goal.View{Standing: goal.Failed, Ended: true, Reason: "Error", Message: `init container "i" exited with code 9`},
		},
		{
			name: "init container runs", until: goal.UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{running("i", false, 0)}},
			want:   goal.View{Reason: "PodInitializing", Message: `init container "i" has not ended yet`},
		},
		{
			name: "sidecar has not started up", until: goal.UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), starting("s")},
			},
			want: goal.View{Reason: "PodInitializing", Message: `init container "s" has not started up`},
		},
		{
			name: "sidecar has died", until: goal.UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), ended("s", 1)},
				ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
			},
			want: goal.View{Reason: "Error", Message: `init container "s" exited with code 1`},
		},
		{
			name: "the record of an init container is gone", until: goal.UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{running("s", true, 0)},
				ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
			},
			want: goal.View{Standing: goal.Running},
		},
		{
			name: "all have exited 0 but the phase has not followed", until: goal.UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   goal.View{Reason: "PodNotCompleted", Message: "every container has exited with code 0; the pod has not ended yet"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := goal.Goal{Until: c.until, Settle: c.settle}.Look(c.pod, c.status, now)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
