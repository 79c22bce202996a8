package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/volume"
)

const boxImage = "localhost/box:1"

// node is a machine in memory: what a process finds on it, and what the next one will.
type node struct {
	engine    *enginetest.Engine
	sandboxes *enginetest.Sandboxes
	cgroups   *enginetest.Cgroups
	volumes   *volume.Manager
	devices   *host.Devices
	objects   enginetest.Objects
	root      string
	pull      image.Mode
	health    bool          // images' health checks count
	records   *record.Store // of the next process
	services  runtime.Services
	event     func(pod *v1.Pod, e podevent.Event)
}

func newNode(t *testing.T) *node {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(synctest.Wait) // for the end of what writes there
	img := engine.Image{Ref: boxImage, ID: "sha256:1", Entrypoint: []string{"/bin/box"}, Cmd: []string{"sleep"}}
	return &node{
		engine: &enginetest.Engine{
			Program:  (&enginetest.Box{}).Program,
			Store:    map[string]engine.Image{boxImage: img},
			Registry: map[string]engine.Image{"localhost/far:1": {Ref: "localhost/far:1", ID: "sha256:2", Entrypoint: []string{"/bin/box"}}},
		},
		sandboxes: &enginetest.Sandboxes{},
		cgroups:   &enginetest.Cgroups{},
		volumes:   &volume.Manager{Root: root, Objects: enginetest.Objects{}, Mounter: enginetest.Mounts{}},
		root:      root,
		records:   record.Open(root, root),
	}
}

// pods is a process that works on the node until the test, or ctx, ends.
func (n *node) pods(ctx context.Context, t *testing.T) *runtime.Pods {
	t.Helper()
	return n.podsOn(ctx, t, n.engine)
}

// podsOn is pods with another engine.
func (n *node) podsOn(ctx context.Context, t *testing.T, e engine.Engine) *runtime.Pods {
	t.Helper()
	hosts := filepath.Join(n.root, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	records := n.records
	n.records = record.Open(n.root, n.root)
	p, err := runtime.New(ctx, runtime.Options{
		Engine: e, Sandboxes: n.sandboxes, Volumes: n.volumes, Cgroups: n.cgroups,
		Objects: n.objects, Devices: n.devices, Pull: n.pull, Healthchecks: n.health, Event: n.event, Services: n.services, Records: records, LogDir: filepath.Join(n.root, "log"),
		Node: ocispec.Node{Name: "node", IPs: []string{"192.0.2.1"}, MemoryCapacity: 1 << 30},
		Host: runtime.Host{Host: ocispec.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(n.root, "none")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// left fails the test when anything of a pod is left on the node.
func (n *node) left(t *testing.T) {
	t.Helper()
	cs, err := n.engine.Containers(t.Context(), "")
	if err != nil || len(cs) > 0 {
		t.Errorf("containers left: %v, %v", cs, err)
	}
	if sandboxes := n.sandboxes.Left(); len(sandboxes) > 0 {
		t.Errorf("sandboxes left: %v", sandboxes)
	}
	if groups := n.cgroups.Left(); len(groups) > 0 {
		t.Errorf("cgroups left: %v", groups)
	}
	entries, err := os.ReadDir(filepath.Join(n.root, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, e := range entries {
		t.Errorf("directory left: %s", e.Name())
	}
}

func testPod(policy v1.RestartPolicy, commands ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-1"}}
	pod.Spec.RestartPolicy = policy
	for i, c := range commands {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: boxImage, Args: strings.Fields(c), ImagePullPolicy: v1.PullIfNotPresent,
			TerminationMessagePath: v1.TerminationMessagePathDefault,
		})
	}
	return pod
}

// states returns "name=running", "name=exit3", "name=waiting Reason" for each container.
func states(s v1.PodStatus) []string {
	var out []string
	for _, c := range append(append([]v1.ContainerStatus{}, s.InitContainerStatuses...), s.ContainerStatuses...) {
		switch {
		case c.State.Running != nil:
			out = append(out, c.Name+"=running")
		case c.State.Terminated != nil:
			out = append(out, fmt.Sprintf("%s=exit%d", c.Name, c.State.Terminated.ExitCode))
		default:
			out = append(out, c.Name+"=waiting "+c.State.Waiting.Reason)
		}
	}
	return out
}

func wantStates(ctx context.Context, t *testing.T, p *runtime.Pods, pod *v1.Pod, want ...string) v1.PodStatus {
	t.Helper()
	s, err := p.Status(ctx, pod)
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	if diff := cmp.Diff(want, states(s)); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	return s
}

func TestSyncStartsPodAndStopRemovesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running")
		if s.Phase != v1.PodRunning || s.PodIP == "" || s.HostIP != "192.0.2.1" || s.StartTime == nil {
			t.Errorf("status = %+v", s)
		}
		listed, err := p.List(t.Context())
		if err != nil || len(listed) != 1 || listed[0].Name != "web" || listed[0].Status.Phase != v1.PodRunning {
			t.Errorf("List = %v, %v", listed, err)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Errorf("second Stop: %v", err)
		}
		if s, err := p.Status(t.Context(), pod); err != nil || s.Phase != v1.PodPending {
			t.Errorf("status of an absent pod: %s, %v", s.Phase, err)
		}
	})
}

// TestHostWithoutHostsFile: a pod on the host's network starts there too.
func TestHostWithoutHostsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		if err := os.Remove(filepath.Join(n.root, "hosts")); err != nil {
			t.Fatal(err)
		}
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.HostNetwork = true
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
	})
}

func TestSyncRunsInitContainersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		for _, name := range []string{"i0", "i1"} {
			c := pod.Spec.Containers[0]
			c.Name, c.Args = name, []string{"sleep", "1s"}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		wants := [][]string{
			{"i0=running", "i1=waiting PodInitializing", "c0=waiting PodInitializing"},
			{"i0=exit0", "i1=running", "c0=waiting PodInitializing"},
			{"i0=exit0", "i1=exit0", "c0=running"},
		}
		for _, want := range wants {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			wantStates(t.Context(), t, p, pod, want...)
			time.Sleep(2 * time.Second)
		}
	})
}

func TestSyncRestartsWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "exit 4")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatalf("the first restart is not immediate: %v", err)
		}
		time.Sleep(time.Millisecond)
		err := p.Sync(t.Context(), pod)
		var s *runtime.SyncError
		if !errors.As(err, &s) || s.Reason() != podstate.ReasonCrashLoopBackOff || s.Permanent() {
			t.Fatalf("second restart: %v, want a back-off", err)
		}
		if wait := s.RetryAfter(); wait <= 9*time.Second || wait > 10*time.Second {
			t.Errorf("back-off of %s, want 10s less the time since the end", wait)
		}
		got := wantStates(t.Context(), t, p, pod, "c0=waiting CrashLoopBackOff")
		later := n.listed(t).Status.ContainerStatuses[0].State.Waiting
		if later == nil || *later != *got.ContainerStatuses[0].State.Waiting || !strings.HasPrefix(later.Message, "back-off 10s restarting failed container=c0 pod=") {
			t.Errorf("a later process sees %+v", later)
		}
		if last := got.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 4 {
			t.Errorf("last termination = %+v", last)
		}
		time.Sleep(s.RetryAfter())
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Errorf("after the back-off: %v", err)
		}
		got, err = p.Status(t.Context(), pod)
		if err != nil || got.ContainerStatuses[0].RestartCount != 2 {
			t.Errorf("restarts = %d, %v; want 2", got.ContainerStatuses[0].RestartCount, err)
		}
	})
}

func TestSyncErrors(t *testing.T) {
	tests := []struct {
		name      string
		change    func(n *node, pod *v1.Pod)
		reason    string
		permanent bool
		states    []string
		message   string
	}{
		{
			name:   "command missing; the other container starts",
			change: func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Command = []string{"/bin/none"} },
			reason: "RunContainerError", permanent: true, states: []string{"c0=waiting RunContainerError", "c1=running"},
			message: `container "c0"`,
		},
		{
			name:   "image nowhere",
			change: func(_ *node, pod *v1.Pod) { pod.Spec.Containers[1].Image = "localhost/none:1" },
			reason: failure.ReasonErrImagePull, permanent: true, states: []string{"c0=running", "c1=waiting ErrImagePull"},
			message: "localhost/none:1",
		},
		{
			name: "image absent, never pulled",
			change: func(_ *node, pod *v1.Pod) {
				pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "localhost/far:1", v1.PullNever
			},
			reason: "ErrImageNeverPull", permanent: true, states: []string{"c0=waiting ErrImageNeverPull", "c1=running"},
			message: "is not present with pull policy of Never",
		},
		{
			name: "registry away",
			change: func(n *node, pod *v1.Pod) {
				pod.Spec.Containers[0].Image = "localhost/far:1"
				n.engine.PullErrors = map[string][]error{"localhost/far:1": {errors.New("connection refused")}}
			},
			reason: failure.ReasonErrImagePull, states: []string{"c0=waiting ErrImagePull", "c1=running"},
			message: "connection refused",
		},
		{
			name: "network away",
			change: func(n *node, _ *v1.Pod) {
				n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no free address") }
			},
			reason: podstate.ReasonSandboxError, states: []string{"c0=waiting ContainerCreating", "c1=waiting ContainerCreating"},
			message: "no free address",
		},
		{
			name: "key missing",
			change: func(_ *node, pod *v1.Pod) {
				pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
					LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Key: "k",
				}}}}
			},
			reason: failure.ReasonConfigError, permanent: true, states: []string{"c0=waiting CreateContainerConfigError", "c1=running"},
			message: "none",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
				tt.change(n, pod)
				err := p.Sync(t.Context(), pod)
				var s *runtime.SyncError
				if !errors.As(err, &s) {
					t.Fatalf("Sync: %v, want a SyncError", err)
				}
				if s.Reason() != tt.reason || s.Permanent() != tt.permanent || s.RetryAfter() != 0 {
					t.Errorf("%v: reason %s, permanent %t, wait %s", err, s.Reason(), s.Permanent(), s.RetryAfter())
				}
				if !strings.Contains(err.Error(), tt.message) {
					t.Errorf("error %q does not say %q", err, tt.message)
				}
				wantStates(t.Context(), t, p, pod, tt.states...)
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Errorf("Stop: %v", err)
				}
				n.left(t)
			})
		})
	}
}

func TestSyncRetriesTransientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].Image = "localhost/far:1"
		n.engine.PullErrors = map[string][]error{"localhost/far:1": {errors.New("connection refused")}}
		if err := p.Sync(t.Context(), pod); err == nil {
			t.Fatal("the first pull succeeded")
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
	})
}

func TestPullAlwaysPullsOncePerRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		for i := range 3 {
			pod := testPod(v1.RestartPolicyAlways, "sleep")
			pod.UID = metav1.ObjectMeta{UID: pod.UID + "-" + pod.UID}.UID + pod.UID[:i]
			pod.Spec.Containers[0].Image = "localhost/far:1"
			pod.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"localhost/far:1"}, n.engine.Pulls()); diff != "" {
			t.Errorf("pulls (-want +got):\n%s", diff)
		}
	})
}
