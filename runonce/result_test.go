package runonce_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// logBook is a Logs whose lines have the name of the instance that wrote them.
type logBook struct{}

func (logBook) Path(pod *v1.Pod, _, id string) string {
	return fmt.Sprintf("/logs/%s/%s.log", pod.Name, id)
}

func (b logBook) Tail(path string, n int) ([]string, error) {
	if strings.Contains(path, "silent") {
		return nil, errBroken
	}
	return []string{fmt.Sprintf("%d lines of %s", n, path)}, nil
}

// annotating is a runtime that annotates pods.
type annotating struct{ *fake }

func (annotating) Annotations(_ context.Context, pod *v1.Pod) map[string]string {
	return map[string]string{"of": pod.Name}
}

// TestAnnotations: the annotations of the runtime are in the result of a pod that was started.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := annotating{&fake{scripts: map[string]script{"web": runs()}}}
		plan := admitted(newPod("web", ""))
		plan.Decisions = append(plan.Decisions, admit.Decision{Pod: newPod("no", ""), Verdict: admit.Rejected})
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{})
		want(t, "annotation", got[0].Annotations["of"], "web")
		want(t, "annotations of a rejected pod", len(got[1].Annotations), 0)
	})
}

// blind is a runtime that does not see its pods any more since the given time, or never, and says what it
// sees first when it is asked.
type blind struct {
	*fake
	since time.Time
	see   func()
}

func (b blind) Refresh(context.Context) (time.Time, error) {
	if b.see != nil {
		b.see()
	}
	if b.since.IsZero() {
		return time.Time{}, nil
	}
	return b.since, errBroken
}

// TestUnknown: what was last seen of a pod is not stated as a fact when nobody has seen it since. A pod that
// had ended before stays as it was.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		until runonce.Until
		limit time.Duration
		blind bool
		want  string // %s is the time
	}{
		{"timeout", runonce.UntilCompleted, time.Minute, true, "job TimedOut, Unknown StatusUnknown: the state of the pod is unknown since %s: broken; last seen: still running: \"c\"\n" +
			"done Succeeded, Succeeded : \n" +
			"web Failed, Unknown StatusUnknown: the state of the pod is unknown since %s: broken; last seen: the pod was Ready\n"},
		{"at their goal", runonce.UntilRunning, 0, true, "job Failed, Unknown StatusUnknown: the state of the pod is unknown since %s: broken; last seen: the pod was Running\n" +
			"done Succeeded, Succeeded : \n" +
			"web Failed, Unknown StatusUnknown: the state of the pod is unknown since %s: broken; last seen: the pod was Running\n"},
		{"seen", runonce.UntilCompleted, time.Minute, false, "job TimedOut, Running PodNotCompleted: still running: \"c\"\n" +
			"done Succeeded, Succeeded : \n" +
			"web Ready, Running : \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := blind{fake: &fake{scripts: map[string]script{"job": runs(), "web": runs(), "done": {timeline: []moment{{0, with(v1.PodSucceeded, ended(0))}}}}}}
				if c.blind {
					rt.since = time.Now().Add(time.Second)
				}
				plan := admitted(newPod("job", v1.RestartPolicyNever), newPod("done", v1.RestartPolicyNever), newPod("web", ""))
				var got strings.Builder
				for _, r := range runonce.Run(t.Context(), rt, plan, runonce.Options{Until: c.until, Timeout: c.limit}) {
					fmt.Fprintf(&got, "%s %s, %s %s: %s\n", r.Pod.Name, r.Outcome, r.Status.Phase, r.Reason, r.Message)
				}
				if d := cmp.Diff(strings.ReplaceAll(c.want, "%s", rt.since.Format(time.TimeOnly)), got.String()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestRefreshed: at its end, an interrupted run says how the pods are then.
func TestRefreshed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		succeeds := script{timeline: []moment{{0, running()}}, noEvents: true}
		rt := blind{fake: &fake{scripts: map[string]script{"job": succeeds}}}
		rt.see = func() {
			rt.mu.Lock()
			defer rt.mu.Unlock()
			succeeds.timeline = []moment{{0, with(v1.PodSucceeded, ended(0))}}
			rt.scripts["job"] = succeeds
		}
		got := runonce.Run(t.Context(), rt, admitted(newPod("job", v1.RestartPolicyNever)), runonce.Options{Until: runonce.UntilCompleted, Timeout: time.Minute})[0]
		if got.Outcome != runonce.Succeeded {
			t.Errorf("%+v", got)
		}
	})
}

func TestContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("web", v1.RestartPolicyNever)
		pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "app:1"}}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "silent", Image: "app:2"}, v1.Container{Name: "waits", Image: "app:3"},
			v1.Container{Name: "again", Image: "app:4"}, v1.Container{Name: "hooked", Image: "app:5"})
		named := func(cs v1.ContainerStatus, name string) v1.ContainerStatus {
			cs.Name, cs.ContainerID = name, name+"-0"
			if t := cs.State.Terminated; t != nil {
				t.ContainerID = cs.ContainerID
			}
			return cs
		}
		again := named(restarted(up(), 2), "again")
		again.ContainerID = "again-2"
		again.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 6, ContainerID: "again-1"}
		waits := waiting("PodInitializing")
		waits.Name = "waits"
		st := with(v1.PodFailed, named(ended(3), "c"), named(ended(4), "silent"), waits, again, named(waiting("ContainerCreating"), "hooked"))
		st.InitContainerStatuses = []v1.ContainerStatus{named(ended(0), "init")}
		rt := &fake{scripts: map[string]script{"web": {timeline: []moment{{0, st}}}}}
		trace := &runonce.Trace{}
		begin := time.Now()
		trace.Record(pod.UID, "network", begin.Add(2*time.Second), time.Second)
		trace.Record(pod.UID, "volumes", begin.Add(time.Second), time.Second)
		trace.Record("other", "volumes", begin, time.Second)
		got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Logs: logBook{}, Trace: trace})[0]
		code := func(n int32) *int32 { return &n }
		want := []runonce.Container{
			{Name: "init", Image: "app:1", State: "Terminated", ExitCode: code(0), LogPath: "/logs/web/init-0.log"},
			{Name: "c", Image: "app:1", State: "Terminated", ExitCode: code(3), LogPath: "/logs/web/c-0.log", LogTail: []string{"10 lines of /logs/web/c-0.log"}},
			{Name: "silent", Image: "app:2", State: "Terminated", ExitCode: code(4), LogPath: "/logs/web/silent-0.log"},
			{Name: "waits", Image: "app:3", State: "Waiting"},
			{
				Name: "again", Image: "app:4", State: "Running", ExitCode: code(6), Restarts: 2,
				LogPath: "/logs/web/again-1.log", LogTail: []string{"10 lines of /logs/web/again-1.log"},
			},
			{Name: "hooked", Image: "app:5", State: "Waiting", LogPath: "/logs/web/hooked-0.log"},
		}
		if diff := cmp.Diff(want, got.Containers); diff != "" {
			t.Error(diff)
		}
		want[0].Output = []string{"10 lines of /logs/web/init-0.log"}
		want[5].Output = []string{"10 lines of /logs/web/hooked-0.log"}
		all := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Logs: logBook{}, Outputs: true})[0]
		if diff := cmp.Diff(want, all.Containers); diff != "" {
			t.Errorf("with all outputs: %s", diff)
		}
		if diff := cmp.Diff([]runonce.Phase{{"volumes", time.Second, time.Second}, {"network", 2 * time.Second, time.Second}}, got.Phases); diff != "" {
			t.Error(diff)
		}
	})
}
