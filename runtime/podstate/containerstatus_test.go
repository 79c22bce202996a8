package podstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// TestWaitsToStartAgain: a container that has ended waits for its next instance only if there will
// be one.
func TestWaitsToStartAgain(t *testing.T) {
	t.Parallel()
	now, second := time.Now(), int64(1)
	pod := &v1.Pod{Spec: v1.PodSpec{
		ActiveDeadlineSeconds: &second,
		InitContainers:        []v1.Container{{Name: "init", Image: "app:1"}},
		Containers:            []v1.Container{{Name: "main", Image: "app:1"}},
	}}
	failures := map[string]record.Failure{"init": {Reason: "ErrImagePull", Attempt: 1}, "main": {Reason: "CrashLoopBackOff", Attempt: 1}}
	ended := func(name string, code int32) engine.Container {
		return engine.Container{ID: name, Name: name, State: engine.StateExited, Exit: engine.Exit{ExitCode: code}}
	}
	for _, c := range []struct {
		name   string
		record record.Pod
		init   string
		main   string
	}{
		{"in back-off", record.Pod{Failures: failures}, "", "CrashLoopBackOff"},
		{"in a new sandbox", record.Pod{Failures: failures, Sandboxed: map[string]int{"init": 0, "main": 0}}, "ErrImagePull", "CrashLoopBackOff"},
		{"before its deadline", record.Pod{Failures: failures, Started: now}, "", "CrashLoopBackOff"},
		{"past its deadline", record.Pod{Failures: failures, Started: now.Add(-time.Second)}, "", ""},
		{"the pod has failed", record.Pod{Failures: failures, Failed: &record.Failure{Reason: "Evicted"}}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := &Observation{Pod: pod, Record: &c.record, Sandbox: &engine.Sandbox{}, Containers: map[string]engine.Container{
				"init": ended("init", 0), "main": ended("main", 1),
			}}
			st := Status(o, now)
			waits := func(cs v1.ContainerStatus) string {
				if cs.State.Waiting != nil {
					return cs.State.Waiting.Reason
				}
				return ""
			}
			if init, main := waits(st.InitContainerStatuses[0]), waits(st.ContainerStatuses[0]); init != c.init || main != c.main {
				t.Errorf("init waits for %q, main for %q", init, main)
			}
		})
	}
}

// TestForeignImage: a failure says that the image is for another platform, unless the program has said more.
func TestForeignImage(t *testing.T) {
	t.Parallel()
	const foreign = "its image is for linux/arm64, not for this machine's platform"
	for _, c := range []struct {
		name     string
		platform string
		exit     engine.Exit
		want     string
	}{
		{"foreign", "linux/arm64", engine.Exit{ExitCode: 1}, foreign},
		{"foreign, with a message", "linux/arm64", engine.Exit{ExitCode: 1, Message: "said"}, "said"},
		{"emulated", "linux/arm64", engine.Exit{}, ""},
		{"own", "", engine.Exit{ExitCode: 1}, ""},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "app:1"}}}}
		o := &Observation{Pod: pod, Record: &record.Pod{}, Containers: map[string]engine.Container{
			"main": {Name: "main", State: engine.StateExited, Exit: c.exit, Labels: map[string]string{engine.LabelPlatform: c.platform}},
		}}
		if got := Status(o, time.Now()).ContainerStatuses[0].State.Terminated; got == nil || got.Message != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
