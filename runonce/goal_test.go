package runonce_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// second makes it the status of the second container, "d".
func second(cs v1.ContainerStatus) v1.ContainerStatus {
	cs.Name = "d"
	return cs
}

// TestAwait: a run goes on until the awaited container has ended, and sees what happens to other pods.
func TestAwait(t *testing.T) {
	t.Parallel()
	const s = time.Second
	never := v1.ContainerRestartPolicyNever
	two := func(policy v1.RestartPolicy) *v1.Pod {
		pod := newPod("a", policy)
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d", RestartPolicy: &never})
		return pod
	}
	withInit := newPod("a", v1.RestartPolicyNever)
	withInit.Spec.InitContainers = []v1.Container{{Name: "d"}}
	initDone := running()
	initDone.InitContainerStatuses = []v1.ContainerStatus{second(ended(0))}
	at := func(d time.Duration, phase v1.PodPhase, cs ...v1.ContainerStatus) moment {
		return moment{d, with(phase, cs...)}
	}
	test := []moment{{0, running()}, at(8*s, v1.PodFailed, ended(5))}
	for _, c := range []struct {
		name      string
		pod       *v1.Pod
		timeline  []moment
		container string
		options   runonce.Options
		db        []moment // of the other pod
		want      runonce.Outcome
		message   string
		wantDB    runonce.Outcome
		elapsed   time.Duration
	}{
		{name: "until the pod has failed", pod: newPod("a", v1.RestartPolicyNever), timeline: test, want: runonce.Failed, message: `container "c" exited with code 5`, elapsed: 8 * s},
		{
			name: "until the pod has succeeded", pod: newPod("a", v1.RestartPolicyOnFailure),
			timeline: []moment{{0, running()}, at(8*s, v1.PodSucceeded, ended(0))}, want: runonce.Succeeded, elapsed: 8 * s,
		},
		{
			name: "the other pod fails meanwhile", pod: newPod("a", v1.RestartPolicyNever), timeline: test,
			db: []moment{{0, running()}, at(2*s, v1.PodFailed, ended(1))}, want: runonce.Failed, message: "code 5", wantDB: runonce.Failed, elapsed: 8 * s,
		},
		{
			name: "fail fast", pod: newPod("a", v1.RestartPolicyNever), timeline: test, options: runonce.Options{FailFast: true},
			db: []moment{{0, running()}, at(2*s, v1.PodFailed, ended(1))}, want: runonce.Canceled, message: `pod "default/db" failed`, wantDB: runonce.Failed, elapsed: 2 * s,
		},
		{
			name: "timeout", pod: newPod("a", v1.RestartPolicyNever), timeline: test, options: runonce.Options{Timeout: 5 * s},
			want: runonce.TimedOut, message: `still running: "c"`, elapsed: 5 * s,
		},
		{
			name: "restarted until it succeeds", pod: newPod("a", v1.RestartPolicyOnFailure),
			timeline: []moment{{0, running()}, at(2*s, v1.PodRunning, crashed(0)), at(3*s, v1.PodRunning, restarted(up(), 1)), at(8*s, v1.PodSucceeded, ended(0))},
			want:     runonce.Succeeded, elapsed: 8 * s,
		},
		{
			name: "until it is given up", pod: newPod("a", v1.RestartPolicyAlways), options: runonce.Options{MaxRestarts: new(0)},
			timeline: []moment{{0, running()}, at(8*s, v1.PodRunning, crashed(0))}, want: runonce.Failed, message: "gave up after 0 restarts", elapsed: 8 * s,
		},
		{
			name: "one container, beside one that goes on", pod: two(v1.RestartPolicyAlways), container: "d",
			timeline: []moment{at(0, v1.PodRunning, up(), second(up())), at(8*s, v1.PodRunning, up(), second(ended(0)))}, want: runonce.Running, elapsed: 8 * s,
		},
		{
			name: "one container, which fails", pod: two(v1.RestartPolicyAlways), container: "d",
			timeline: []moment{at(0, v1.PodRunning, up(), second(up())), at(8*s, v1.PodRunning, up(), second(ended(5)))}, want: runonce.Failed, message: `"d" exited with code 5`, elapsed: 8 * s,
		},
		{
			name: "one container, and the other fails first", pod: two(v1.RestartPolicyNever), container: "d",
			timeline: []moment{at(0, v1.PodRunning, up(), second(up())), at(2*s, v1.PodRunning, ended(3), second(up())), at(8*s, v1.PodFailed, ended(3), second(ended(0)))},
			want:     runonce.Failed, message: `"c" exited with code 3`, elapsed: 8 * s,
		},
		{
			name: "the pod, not only the container that failed", pod: two(v1.RestartPolicyNever),
			timeline: []moment{at(0, v1.PodRunning, up(), second(up())), at(2*s, v1.PodRunning, ended(3), second(up())), at(8*s, v1.PodFailed, ended(3), second(ended(0)))},
			want:     runonce.Failed, message: `"c" exited with code 3`, elapsed: 8 * s,
		},
		{name: "an init container that is done", pod: withInit, timeline: []moment{{0, initDone}}, container: "d", want: runonce.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if c.db == nil {
					c.db = []moment{{0, running()}}
				}
				rt := &fake{scripts: map[string]script{"a": {timeline: c.timeline}, "db": {timeline: c.db}}}
				c.options.Await = runonce.Await{Pod: podspec.NameOf(c.pod), Container: c.container}
				begin := time.Now()
				got := runonce.Run(t.Context(), rt, admitted(c.pod, newPod("db", v1.RestartPolicyNever)), c.options)
				want(t, "outcome", got[0].Outcome, c.want)
				if !strings.Contains(got[0].Message, c.message) {
					t.Errorf("message %q, want %q in it", got[0].Message, c.message)
				}
				if c.wantDB != "" {
					want(t, "outcome of the other pod", got[1].Outcome, c.wantDB)
				}
				want(t, "elapsed", time.Since(begin), c.elapsed)
			})
		})
	}
}

// TestAwaitCheck: a wait without an end is refused.
func TestAwaitCheck(t *testing.T) {
	t.Parallel()
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	mixed := newPod("a", v1.RestartPolicyAlways)
	mixed.Spec.Containers = append(mixed.Spec.Containers, v1.Container{Name: "d", RestartPolicy: &never})
	sidecar := func(policy v1.RestartPolicy) *v1.Pod {
		pod := newPod("a", policy)
		pod.Spec.InitContainers = []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
		return pod
	}
	const refused = `container "c" of pod "a" never finishes: it is restarted whenever it exits; set restartPolicy to Never or OnFailure`
	for _, c := range []struct {
		name, container string
		pod             *v1.Pod
		maxRestarts     int
		want            string
	}{
		{name: "never", pod: newPod("a", v1.RestartPolicyNever), maxRestarts: 3},
		{name: "on failure", pod: newPod("a", v1.RestartPolicyOnFailure), maxRestarts: 3},
		{name: "always", pod: newPod("a", v1.RestartPolicyAlways), maxRestarts: 3, want: refused},
		{name: "always, once", pod: newPod("a", v1.RestartPolicyAlways)},
		{name: "one of a pod that goes on", container: "d", pod: mixed, maxRestarts: 3},
		{name: "a pod that goes on", pod: mixed, maxRestarts: 3, want: refused},
		{name: "init container", container: "i", pod: sidecar(v1.RestartPolicyAlways), maxRestarts: 3},
		{name: "sidecar", container: "s", pod: sidecar(v1.RestartPolicyNever), maxRestarts: 3},
		{name: "sidecar of a pod that goes on", container: "s", pod: sidecar(v1.RestartPolicyAlways), maxRestarts: 3, want: refused},
	} {
		got := ""
		if err := (runonce.Await{Pod: podspec.NameOf(c.pod), Container: c.container}).Check(c.pod, c.maxRestarts); err != nil {
			got = err.Error()
		}
		want(t, c.name, got, c.want)
	}
}
