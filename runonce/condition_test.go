package runonce

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// ownPolicy gives the first container of the pod a restart policy of its own.
func ownPolicy(pod *v1.Pod, policy v1.ContainerRestartPolicy) *v1.Pod {
	pod.Spec.Containers[0].RestartPolicy = &policy
	return pod
}

func TestCondition(t *testing.T) {
	t.Parallel()
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	plain, sidecar := v1.Container{Name: "i"}, v1.Container{Name: "s", RestartPolicy: &always}
	both := []v1.Container{plain, sidecar}
	backOff := waiting("a", "CrashLoopBackOff", "back-off 20s")
	backOff.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "out of memory\n"}
	oom := func(name string) v1.ContainerStatus {
		cs := ended(name, 0)
		cs.State.Terminated.Reason = "OOMKilled"
		return cs
	}
	late, early := ended("b", 4), ended("a", 5)
	late.State.Terminated.FinishedAt, early.State.Terminated.FinishedAt = metav1.NewTime(now), metav1.NewTime(now.Add(-time.Second))
	for _, c := range []struct {
		name    string
		until   Until
		settle  time.Duration
		history history
		pod     *v1.Pod
		status  v1.PodStatus
		want    condition
	}{
		{
			name: "running", until: UntilRunning, pod: newPod("", nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0), running("b", false, 0)}},
			want:   condition{outcome: Running},
		},
		{
			name: "an init container with a policy of its own has failed", until: UntilRunning,
			pod:    newPod(v1.RestartPolicyAlways, []v1.Container{{Name: "i", RestartPolicy: &never}}, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("i", 5)}, ContainerStatuses: []v1.ContainerStatus{waiting("a", "PodInitializing", "")}},
			want:   condition{outcome: Failed, ended: true, reason: "Error", message: `init container "i" exited with code 5`},
		},
		{
			name: "an init container was OOM-killed, and a kubelet leaves it at that", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, []v1.Container{plain}, "a"),
			status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{oom("i")}, ContainerStatuses: []v1.ContainerStatus{waiting("a", "PodInitializing", "")}},
			want: condition{
				outcome: Failed, ended: true, reason: "OOMKilled",
				message: `init container "i" exited with code 0, but one of its processes was OOM-killed`,
			},
		},
		{
			name: "an init container was OOM-killed and runs again", until: UntilRunning, pod: newPod(v1.RestartPolicyOnFailure, []v1.Container{plain}, "a"),
			status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{oom("i")}, ContainerStatuses: []v1.ContainerStatus{waiting("a", "PodInitializing", "")}},
			want:   condition{reason: "OOMKilled", message: `init container "i" exited with code 0, but one of its processes was OOM-killed`},
		},
		{
			name: "OOM-killed, and succeeded", until: UntilCompleted, pod: newPod(v1.RestartPolicyNever, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{oom("a")}},
			want: condition{
				outcome: Succeeded, ended: true, reason: "OOMKilled",
				message: `container "a" exited with code 0, but one of its processes was OOM-killed`,
			},
		},
		{
			name: "OOM-killed beside one that runs", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{oom("a"), running("b", true, 0)}},
			want:   condition{outcome: Running, reason: "OOMKilled", message: `container "a" exited with code 0, but one of its processes was OOM-killed`},
		},
		{
			name: "a sidecar's end does not count", until: UntilCompleted, pod: newPod(v1.RestartPolicyNever, []v1.Container{sidecar}, "a"),
			status: v1.PodStatus{Phase: v1.PodSucceeded, InitContainerStatuses: []v1.ContainerStatus{oom("s")}, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   condition{outcome: Succeeded, ended: true},
		},
		{
			name: "only a sidecar is left to end", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, []v1.Container{sidecar}, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{running("s", true, time.Minute)},
				ContainerStatuses: []v1.ContainerStatus{ended("a", 3)},
			},
			want: condition{reason: "Error", message: `container "a" exited with code 3; waiting for sidecar "s" to stop`},
		},
		{
			name: "one of two", until: UntilRunning, pod: newPod("", nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0), waiting("b", "ImagePullBackOff", "no route")}},
			want:   condition{reason: "ImagePullBackOff", message: `container "b" is waiting: ImagePullBackOff: no route`},
		},
		{
			name: "no status yet", until: UntilRunning, pod: newPod("", nil, "a"), status: v1.PodStatus{Phase: v1.PodPending},
			want: condition{reason: "ContainerCreating", message: `container "a" has not been started`},
		},
		{
			name: "crash loop", until: UntilRunning, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{backOff}},
			want: condition{
				reason:  "CrashLoopBackOff",
				message: `container "a" is waiting: CrashLoopBackOff: back-off 20s; before that it exited with code 137 (OOMKilled): out of memory`,
			},
		},
		{
			name: "exited 0 under Always runs again", until: UntilRunning, pod: newPod(v1.RestartPolicyAlways, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   condition{reason: "Error", message: `container "a" exited with code 0`},
		},
		{
			name: "killed by a probe, and starts again", until: UntilRunning, pod: newPod(v1.RestartPolicyAlways, nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 137)},
				Conditions: []v1.PodCondition{{Type: v1.ContainersReady, Message: "the kubelet's words; the probe's"}},
			},
			want: condition{reason: "Error", message: `container "a" exited with code 137: the probe's`},
		},
		{
			name: "exited 0 under Never beside one that runs", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0), running("b", true, 0)}},
			want:   condition{outcome: Running},
		},
		{
			name: "ready beside one that has exited 0", until: UntilReady, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0), running("b", true, 0)}},
			want:   condition{outcome: Ready},
		},
		{
			name: "failed under Never beside one that runs", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 3), running("b", true, 0)}},
			want:   condition{outcome: Failed, ended: true, reason: "Error", message: `container "a" exited with code 3`},
		},
		{
			name: "failed under Never, the run waits for the others", until: UntilCompleted, pod: newPod(v1.RestartPolicyNever, nil, "a", "b"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 3), running("b", true, 0)}},
			want:   condition{reason: "Error", message: `container "a" exited with code 3`},
		},
		{
			name: "completed waits for the end", until: UntilCompleted, pod: newPod(v1.RestartPolicyOnFailure, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)}},
			want:   condition{reason: "PodNotCompleted", message: `still running: "a"`},
		},
		{
			name: "completed waits for a container that can end", until: UntilCompleted, pod: ownPolicy(newPod(v1.RestartPolicyAlways, nil, "a", "b"), never),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0), running("b", true, 0)}, Conditions: podReady(v1.ConditionTrue, "", "")},
			want:   condition{reason: "PodNotCompleted", message: `still running: "a"`},
		},
		{
			name: "completed waits for a pod whose containers all can end", until: UntilCompleted, pod: ownPolicy(newPod(v1.RestartPolicyAlways, nil, "a"), never),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)}, Conditions: podReady(v1.ConditionTrue, "", "")},
			want:   condition{reason: "PodNotCompleted", message: `still running: "a"`},
		},
		{
			name: "completed does not wait for a container that cannot end", until: UntilCompleted, pod: ownPolicy(newPod(v1.RestartPolicyNever, nil, "a", "b"), always),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0), ended("b", 0)}},
			want:   condition{outcome: Ready},
		},
		{
			name: "completed under Always is ready", until: UntilCompleted, pod: newPod(v1.RestartPolicyAlways, nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
				Conditions: podReady(v1.ConditionTrue, "", ""),
			},
			want: condition{outcome: Ready},
		},
		{
			name: "not ready", until: UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0)}},
			want:   condition{reason: "ContainersNotReady", message: `container "a" is running but not ready`},
		},
		{
			name: "not ready, and why", until: UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", false, 0)},
				Conditions: []v1.PodCondition{{Type: v1.ContainersReady, Message: "the kubelet's words; the probe's"}},
			},
			want: condition{reason: "ContainersNotReady", message: `container "a" is running but not ready: the probe's`},
		},
		{
			name: "containers ready, the pod not", until: UntilReady, pod: newPod("", nil, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
				Conditions: podReady(v1.ConditionFalse, "ReadinessGatesNotReady", "gate missing"),
			},
			want: condition{reason: "ReadinessGatesNotReady", message: "gate missing"},
		},
		{
			name: "settling", until: UntilRunning, settle: time.Second, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, 300*time.Millisecond)}},
			want:   condition{reason: "Settling", message: `container "a" has started, settling for 1s`, recheck: 700 * time.Millisecond},
		},
		{
			name: "settling with a clock that runs ahead", until: UntilRunning, settle: time.Second, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("a", true, -time.Hour)}},
			want:   condition{reason: "Settling", message: `container "a" has started, settling for 1s`, recheck: time.Second},
		},
		{
			name: "succeeded", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   condition{outcome: Succeeded, ended: true},
		},
		{
			name: "failed: the one that ended first is named", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "b", "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{late, early}},
			want:   condition{outcome: Failed, ended: true, reason: "Error", message: `container "a" exited with code 5`},
		},
		{
			name: "failed for the pod's own reason", until: UntilRunning, pod: newPod("", nil, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "too long", ContainerStatuses: []v1.ContainerStatus{ended("a", 137)}},
			want: condition{
				outcome: Failed, ended: true, reason: "DeadlineExceeded", message: `too long; container "a" exited with code 137`,
			},
		},
		{
			name: "init container fails", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, both, "a"),
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("i", 9)}},
			want:   condition{outcome: Failed, ended: true, reason: "Error", message: `init container "i" exited with code 9`},
		},
		{
			name: "init container runs", until: UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{running("i", false, 0)}},
			want:   condition{reason: "PodInitializing", message: `init container "i" has not ended yet`},
		},
		{
			name: "sidecar has not started up", until: UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), starting("s")},
			},
			want: condition{reason: "PodInitializing", message: `init container "s" has not started up`},
		},
		{
			name: "sidecar has died", until: UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), ended("s", 1)},
				ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
			},
			want: condition{reason: "Error", message: `init container "s" exited with code 1`},
		},
		{
			name: "sidecar is not ready, and one container is done", until: UntilReady, pod: newPod(v1.RestartPolicyNever, both, "a", "b"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), running("s", false, 0)},
				ContainerStatuses: []v1.ContainerStatus{ended("a", 0), running("b", true, 0)},
			},
			want: condition{reason: "ContainersNotReady", message: `container "s" is running but not ready`},
		},
		{
			name: "the record of an init container is gone", until: UntilRunning, pod: newPod("", both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{running("s", true, 0)},
				ContainerStatuses: []v1.ContainerStatus{running("a", true, 0)},
			},
			want: condition{outcome: Running},
		},
		{
			name: "all have exited 0 but the phase has not followed", until: UntilRunning, pod: newPod(v1.RestartPolicyNever, nil, "a"),
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)}},
			want:   condition{reason: "PodNotCompleted", message: "every container has exited with code 0; the pod has not ended yet"},
		},
		{
			name: "done, while its sidecar stops", until: UntilReady, pod: newPod(v1.RestartPolicyNever, both, "a"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0)},
				InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), running("s", false, time.Minute)},
			},
			want: condition{reason: "PodNotCompleted", message: `every container has exited with code 0; waiting for sidecar "s" to stop`},
		},
		{
			name: "failed, while its sidecar stops", until: UntilCompleted, pod: newPod(v1.RestartPolicyNever, both, "a", "b"),
			status: v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{ended("a", 0), ended("b", 4)},
				InitContainerStatuses: []v1.ContainerStatus{ended("i", 0), running("s", true, time.Minute)},
			},
			want: condition{reason: "Error", message: `container "b" exited with code 4; waiting for sidecar "s" to stop`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := goal{until: c.until, settle: c.settle}.judge(c.pod, c.status, c.history, now)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(condition{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
