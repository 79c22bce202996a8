package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

func debugger(image, target string, args ...string) v1.EphemeralContainer {
	return v1.EphemeralContainer{TargetContainerName: target, EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debugger", Image: image, Args: args, ImagePullPolicy: v1.PullIfNotPresent,
	}}
}

// watched is an engine that keeps the specs of containers, by name.
type watched struct {
	engine.Engine
	specs map[string]*specs.Spec
}

func (e *watched) Start(ctx context.Context, c engine.ContainerConfig) error {
	e.specs[c.Name] = c.Spec
	return e.Engine.Start(ctx, c)
}

// TestDebug: an ephemeral container starts beside what another process manages, which goes on with it, and is removed
// with the pod.
func TestDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, pod, ctx := newNode(t), testPod(v1.RestartPolicyAlways, "sleep", "sleep"), t.Context()
		run := n.pods(ctx, t)
		if err := run.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		seen := &watched{n.engine, map[string]*specs.Spec{}}
		other := n.podsOn(ctx, t, seen)
		if err := other.Debug(ctx, pod, debugger("localhost/far:1", "c1", "sleep")); err != nil {
			t.Fatal(err)
		}
		want := specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/2/ns/pid"}
		if got := seen.specs["debugger"].Linux.Namespaces[1]; got != want {
			t.Errorf("process namespace %v", got)
		}
		if err := run.Sync(ctx, pod); err != nil {
			t.Error(err)
		}
		st, err := run.Status(ctx, pod)
		if err != nil || len(st.EphemeralContainerStatuses) != 1 || st.EphemeralContainerStatuses[0].State.Running == nil {
			t.Errorf("status %v, %v", st.EphemeralContainerStatuses, err)
		}
		listed, err := run.List(ctx)
		if err != nil || len(listed) != 1 || podspec.Container(listed[0], "debugger") == nil {
			t.Errorf("listed %v, %v", listed, err)
		}
		var events []string
		all, err := run.Events(ctx, pod)
		for _, e := range all {
			if e.Container == "debugger" || strings.Contains(e.Message, "far") {
				events = append(events, e.Reason)
			}
		}
		if diff := cmp.Diff("Pulling Pulled Created Started", strings.Join(events, " ")); diff != "" {
			t.Errorf("events: %v\n%s", err, diff)
		}
		if err := other.Debug(ctx, pod, debugger(boxImage, "", "sleep")); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("the same name again: %v", err)
		}
		if err := run.Stop(ctx, pod); err != nil {
			t.Error(err)
		}
		if left, err := n.engine.Containers(ctx, ""); len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestDebugFails: what cannot be started leaves the pod as it was; what has ended without having run is in its status.
func TestDebugFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		container v1.EphemeralContainer
		startErr  error
		want      string
		known     string // the state in the status, "" if the pod does not have it
	}{
		{name: "no image", container: debugger("localhost/none:1", ""), want: `container "debugger": ErrImagePull`},
		{name: "no program", container: debugger(boxImage, "", "nosuch"), want: "nosuch", known: "debugger=exit128"},
		{name: "a start that fails", container: debugger(boxImage, "", "sleep"), startErr: errors.New("no space left"), want: "no space left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, pod, ctx := newNode(t), testPod(v1.RestartPolicyAlways, "sleep"), t.Context()
				p := n.pods(ctx, t)
				if err := p.Sync(ctx, pod); err != nil {
					t.Fatal(err)
				}
				if tt.startErr != nil {
					p = n.podsOn(ctx, t, failing{n.engine, tt.startErr})
				}
				if err := p.Debug(ctx, pod, tt.container); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				st, err := p.Status(ctx, pod)
				got := strings.Join(states(v1.PodStatus{ContainerStatuses: st.EphemeralContainerStatuses}), " ")
				if err != nil || got != tt.known || !podspec.IsReady(st) {
					t.Errorf("status %q, want %q, ready %t, %v", got, tt.known, podspec.IsReady(st), err)
				}
			})
		})
	}
}

// failing is an engine on which no container starts.
type failing struct {
	engine.Engine
	err error
}

func (e failing) Start(context.Context, engine.ContainerConfig) error { return e.err }

// TestSyncEphemeral: a definition with another ephemeral container has that start once. That it does not start is no
// error of the pod.
func TestSyncEphemeral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, pod, ctx := newNode(t), testPod(v1.RestartPolicyAlways, "sleep"), t.Context()
		p := n.pods(ctx, t)
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		pod = pod.DeepCopy()
		missing := debugger("localhost/none:1", "")
		missing.Name = "missing"
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{missing, debugger(boxImage, "c0", "exit", "3")}
		if err := p.Update(ctx, pod); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.Sync(ctx, pod); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		st, err := p.Status(ctx, pod)
		got := states(v1.PodStatus{ContainerStatuses: st.EphemeralContainerStatuses})
		if diff := cmp.Diff([]string{"missing=waiting ErrImagePull", "debugger=exit3"}, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if n := st.EphemeralContainerStatuses[1].RestartCount; n != 0 || !podspec.IsReady(st) {
			t.Errorf("%d restarts, ready %t", n, podspec.IsReady(st))
		}
	})
}

// TestExitCode: the exit code of a container is known when it has ended. Then nobody can attach to it.
func TestExitCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, pod, ctx := newNode(t), testPod(v1.RestartPolicyNever, "exit 4 bye", "sleep 1h"), t.Context()
		p := n.pods(ctx, t)
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := p.Attach(ctx, pod, "c0", engine.Streams{}); err == nil {
			t.Error("attached to what has ended")
		}
		for container, want := range map[string]string{"c0": "4 <nil>", "c1": "0 <nil>"} {
			code, err := p.ExitCode(ctx, pod, container)
			if got := fmt.Sprint(code, err); got != want {
				t.Errorf("%s: %s, want %s", container, got, want)
			}
		}
		if _, err := p.ExitCode(ctx, pod, "none"); err == nil {
			t.Error("there is an exit code of no container")
		}
	})
}
