package provider_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// events are those of the pods, as "pod type reason".
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) record(pod *v1.Pod, what podevent.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s %s", pod.Name, what.Type, what.Reason))
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// TestEvents: what happens to pods is told in the kubelet's words.
func TestEvents(t *testing.T) {
	t.Parallel()
	secret := []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}}}
	for name, tc := range map[string]struct {
		change func(n *fakeNode, pod *v1.Pod)
		want   []string
	}{
		"life":    {func(*fakeNode, *v1.Pod) {}, []string{"Normal Pulled", "Normal Created", "Normal Started", "Normal Killing"}},
		"crashes": {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{"exit", "1"} }, []string{"Normal Pulled", "Normal Created", "Normal Started", "Warning BackOff"}},
		"pull": {func(n *fakeNode, pod *v1.Pod) {
			n.engine.Registry = map[string]engine.Image{"localhost/new:1": {Ref: "localhost/new:1", Entrypoint: []string{"/bin/box"}}}
			pod.Spec.Containers[0].Image = "localhost/new:1"
		}, []string{"Normal Pulling", "Normal Pulled", "Normal Created", "Normal Started", "Normal Killing"}},
		"no image": {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Containers[0].Image = "localhost/none:1" }, []string{"Normal Pulling", "Warning Failed"}},
		"volume":   {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Volumes = secret }, []string{"Warning FailedMount"}},
		"network": {func(n *fakeNode, _ *v1.Pod) {
			n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no address") }
		}, []string{"Warning FailedCreatePodSandBox"}},
		"probe": {func(n *fakeNode, pod *v1.Pod) {
			n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior {
				return enginetest.Behavior{Runs: true, Exec: func([]string) engine.ExecResult { return engine.ExecResult{ExitCode: 1} }}
			}
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
				PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
			}
		}, []string{"Normal Pulled", "Normal Created", "Normal Started", "Warning Unhealthy", "Normal Killing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.provider(t.Context(), t)
				pod := newPod("web", v1.RestartPolicyAlways, "sleep")
				tc.change(n, pod)
				must(t, p.CreatePod(t.Context(), pod))
				time.Sleep(time.Minute)
				remove(t, p, pod)
				var got []string
				for _, e := range n.events.list() {
					if e = strings.TrimPrefix(e, "web "); !slices.Contains(got, e) {
						got = append(got, e)
					}
				}
				want(t, "events", got, tc.want)
			})
		})
	}
}
