package provider_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/provider"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/volume"
)

const (
	boxImage   = "localhost/box:1"
	otherImage = "localhost/box:2"
)

// fakeNode is a machine in memory.
type fakeNode struct {
	engine    *enginetest.Engine
	sandboxes *enginetest.Sandboxes
	root      string
	objects   podspec.Objects
	log       *slog.Logger
	events    events
}

// newNode returns a machine whose processes end with the bubble of the test.
func newNode(t *testing.T) *fakeNode {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(synctest.Wait) // for the end of what writes there
	return nodeIn(root)
}

func nodeIn(root string) *fakeNode {
	store := map[string]engine.Image{}
	for _, ref := range []string{boxImage, otherImage} {
		store[ref] = engine.Image{Ref: ref, ID: "sha256:1", Entrypoint: []string{"/bin/box"}, Cmd: []string{"sleep"}}
	}
	return &fakeNode{
		engine:    &enginetest.Engine{Program: (&enginetest.Box{}).Program, Store: store},
		sandboxes: &enginetest.Sandboxes{},
		root:      root, objects: enginetest.Objects{}, log: slog.New(slog.DiscardHandler),
	}
}

// nodeName is the node's name in the cluster.
const nodeName = "node"

// provider is a process that drives the node until ctx ends.
func (n *fakeNode) provider(ctx context.Context, t *testing.T) *provider.Provider {
	t.Helper()
	p, err := provider.New(ctx, n.pods(ctx, t), nodeName, n.log)
	must(t, err)
	return p
}

// watched is provider with what it notifies.
func (n *fakeNode) watched(ctx context.Context, t *testing.T) (*provider.Provider, *notified) {
	t.Helper()
	p, r := n.provider(ctx, t), &notified{}
	p.NotifyPods(ctx, r.note)
	return p, r
}

// create gives the provider a pod, and waits until it has done what it can at once.
func create(t *testing.T, p *provider.Provider, pod *v1.Pod) {
	t.Helper()
	must(t, p.CreatePod(t.Context(), pod))
	synctest.Wait()
}

// crash makes the only container end with code 1.
func (n *fakeNode) crash(t *testing.T) {
	t.Helper()
	cs, err := n.engine.Containers(t.Context(), "")
	must(t, err)
	n.engine.Kill(cs[0].ID, 1)
}

// podNamed returns a pod of the default namespace as the provider knows it.
func podNamed(t *testing.T, p *provider.Provider, name string) *v1.Pod {
	t.Helper()
	pod, err := p.GetPod(t.Context(), "default", name)
	must(t, err)
	return pod
}

// pods is the runtime of a process on the machine.
func (n *fakeNode) pods(ctx context.Context, t *testing.T) *runtime.Pods {
	t.Helper()
	hosts := filepath.Join(n.root, "hosts")
	if err := os.WriteFile(hosts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pods, err := runtime.New(ctx, runtime.Options{
		Engine: n.engine, Sandboxes: n.sandboxes, Cgroups: &enginetest.Cgroups{},
		Volumes: &volume.Manager{Root: n.root, Objects: n.objects, Mounter: enginetest.Mounts{}},
		Objects: n.objects, Records: record.Open(n.root, n.root), LogDir: filepath.Join(n.root, "log"), Node: ocispec.Node{Name: "node"},
		Host:  runtime.Host{Host: ocispec.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(n.root, "none")},
		Event: n.events.record,
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// remove deletes the pod, and waits until it does not exist any more.
func remove(t *testing.T, p *provider.Provider, pod *v1.Pod) {
	t.Helper()
	must(t, p.DeletePod(t.Context(), pod))
	for {
		if got, err := p.GetPod(t.Context(), pod.Namespace, pod.Name); err != nil || got.UID != pod.UID {
			return
		}
		time.Sleep(time.Second)
	}
}

func newPod(name string, policy v1.RestartPolicy, command string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{
			Name: "main", Image: boxImage, Args: strings.Fields(command), ImagePullPolicy: v1.PullIfNotPresent,
		}}},
	}
}

// notified keeps the notifications, as "name phase state".
type notified struct {
	mu   sync.Mutex
	told []string
	last time.Time
}

func (r *notified) note(pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(pod.Annotations) > 0 {
		r.told = append(r.told, fmt.Sprint(pod.Annotations)) // the cluster would get them
	}
	r.told, r.last = append(r.told, line(pod)), time.Now()
	pod.Name = "scribbled over" // it is a copy
}

func (r *notified) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

// lastTime is the time of the last notification.
func (r *notified) lastTime() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func line(pod *v1.Pod) string {
	text := fmt.Sprintf("%s %s", pod.Name, pod.Status.Phase)
	for _, cs := range pod.Status.ContainerStatuses {
		switch {
		case cs.State.Running != nil:
			text += fmt.Sprintf(" running %d", cs.RestartCount)
		case cs.State.Terminated != nil:
			text += fmt.Sprintf(" exit %d", cs.State.Terminated.ExitCode)
		case cs.State.Waiting != nil:
			text += " " + cs.State.Waiting.Reason
		}
	}
	return text
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLife: a pod is created, read, updated and deleted, with notifications all the time.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, r := n.watched(t.Context(), t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		create(t, p, web)
		got := podNamed(t, p, "web")
		want(t, "created", line(got), "web Running running 0")
		got.Spec.Containers[0].Image = "scribbled over"
		must(t, p.CreatePod(t.Context(), web)) // safe to repeat
		changed := web.DeepCopy()
		changed.Spec.Containers[0].Image, changed.Spec.Containers[0].Args = otherImage, []string{"stay"}
		changed.Spec.TerminationGracePeriodSeconds = new(int64)
		must(t, p.UpdatePod(t.Context(), changed))
		time.Sleep(time.Minute)
		synctest.Wait()
		all, err := p.GetPods(t.Context())
		must(t, err)
		want(t, "updated", []string{line(all[0])}, []string{"web Running running 1"})
		want(t, "image", all[0].Spec.Containers[0].Image, otherImage)
		remove(t, p, changed)
		told := r.lines()
		want(t, "notified first", told[0], "web Running running 0")
		want(t, "notified last", told[len(told)-1], "web Failed exit 137")
		if len(told) != len(slices.Compact(slices.Clone(told))) {
			t.Errorf("notified twice: %v", told)
		}
		if left := n.sandboxes.Left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if left, err := os.ReadDir(filepath.Join(n.root, "pods")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestEnds: the notification of a pod that ends has its exit, and it stays until deleted.
func TestEnds(t *testing.T) {
	t.Parallel()
	for command, last := range map[string][2]string{
		"exit 0": {"job Succeeded exit 0", "job Succeeded exit 0"},
		"exit 3": {"job Failed exit 3", "job Failed exit 3"},
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, r := newNode(t).watched(t.Context(), t)
				job := newPod("job", v1.RestartPolicyNever, command)
				must(t, p.CreatePod(t.Context(), job))
				time.Sleep(time.Hour)
				st, err := p.GetPodStatus(t.Context(), "default", "job")
				must(t, err)
				want(t, "ended", line(&v1.Pod{ObjectMeta: job.ObjectMeta, Status: *st}), last[0])
				remove(t, p, job)
				told := r.lines()
				want(t, "notified last", told[len(told)-1], last[1])
			})
		})
	}
}

// TestGraceOfDeletion: what the deletion says counts before the pod's own grace period; two
// seconds are left to every container.
func TestGraceOfDeletion(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name          string
		own, deletion *int64
		updated       bool   // the provider knows it by an update
		later         *int64 // of a second deletion, after three seconds
		want          time.Duration
	}{
		{name: "none", want: 30 * time.Second},
		{name: "its own", own: seconds(7), want: 7 * time.Second},
		{name: "shorter", own: seconds(7), deletion: seconds(4), want: 4 * time.Second},
		{name: "longer", own: seconds(7), deletion: seconds(60), want: time.Minute},
		{name: "at once", own: seconds(7), deletion: seconds(0), want: 2 * time.Second},
		{name: "shortened", deletion: seconds(60), later: seconds(4), want: 7 * time.Second},
		{name: "forced later", later: seconds(0), want: 5 * time.Second},
		{name: "not lengthened", deletion: seconds(4), later: seconds(60), want: 4 * time.Second},
		{name: "known from an update", own: seconds(7), deletion: seconds(4), updated: true, want: 4 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, r := newNode(t).watched(t.Context(), t)
				web := newPod("web", v1.RestartPolicyAlways, "stay")
				web.Spec.TerminationGracePeriodSeconds = tc.own
				create(t, p, web)
				dying := web.DeepCopy()
				dying.DeletionGracePeriodSeconds = tc.deletion
				if tc.updated {
					must(t, p.UpdatePod(t.Context(), dying))
					dying = web
				}
				begun := time.Now()
				must(t, p.DeletePod(t.Context(), dying))
				want(t, "time of the call", time.Since(begun), time.Duration(0))
				if tc.later != nil {
					time.Sleep(3 * time.Second)
					dying = web.DeepCopy()
					dying.DeletionGracePeriodSeconds = tc.later
					must(t, p.DeletePod(t.Context(), dying))
				}
				time.Sleep(time.Hour)
				want(t, "time taken", r.lastTime().Sub(begun), tc.want)
				want(t, "notified last", r.lines()[len(r.lines())-1], "web Failed exit 137")
			})
		})
	}
}

// TestRetries: a container that crashes is restarted, and one that could not be started is retried.
func TestRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		failures := 3
		n.sandboxes.Err = func(*v1.Pod) error {
			if failures--; failures >= 0 {
				return errors.New("no address")
			}
			return nil
		}
		p := n.provider(t.Context(), t)
		create(t, p, newPod("web", v1.RestartPolicyAlways, "sleep"))
		got := podNamed(t, p, "web")
		want(t, "at first", line(got), "web Pending ContainerCreating")
		time.Sleep(firstTries)
		synctest.Wait()
		n.crash(t)
		time.Sleep(time.Minute)
		got = podNamed(t, p, "web")
		want(t, "then", line(got), "web Running running 1")
	})
}

// firstTries is how long three retries take.
const firstTries = (1 + 2 + 4) * time.Second

// TestLaterProcess: the pods of an earlier one are minded again, as they were last defined.
func TestLaterProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := n.provider(ctx, t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		create(t, first, web)
		changed := web.DeepCopy()
		changed.Labels = map[string]string{"color": "blue"}
		must(t, first.UpdatePod(ctx, changed))
		cancel()
		synctest.Wait()
		n.crash(t)
		later := n.provider(t.Context(), t)
		time.Sleep(time.Minute)
		got := podNamed(t, later, "web")
		want(t, "minded again", line(got), "web Running running 1")
		want(t, "labels", got.Labels, changed.Labels)
		remove(t, later, web)
	})
}

// TestErrors: virtual-kubelet tells errors apart.
func TestErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).provider(t.Context(), t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		must(t, p.CreatePod(t.Context(), web))
		other := web.DeepCopy()
		other.UID = "other"
		_, getErr := p.GetPod(t.Context(), "default", "none")
		_, statusErr := p.GetPodStatus(t.Context(), "other", "web")
		remove(t, p, web)
		for name, c := range map[string]struct {
			err      error
			notFound bool
		}{
			"get": {getErr, true}, "status": {statusErr, true},
			"delete again":       {p.DeletePod(t.Context(), web), true},
			"update":             {p.UpdatePod(t.Context(), web), true},
			"create without UID": {p.CreatePod(t.Context(), &v1.Pod{}), false},
		} {
			isNotFound, isInvalid := errdefs.IsNotFound(c.err), errdefs.IsInvalidInput(c.err)
			if isNotFound != c.notFound || isInvalid == c.notFound {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		must(t, p.CreatePod(t.Context(), web))
		if p.DeletePod(t.Context(), other) == nil {
			t.Error("delete of another UID: no error")
		}
		remove(t, p, web)
	})
}

// TestOldLogs: the logs of a deleted pod are removed when another is deleted a month later.
func TestOldLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := newNode(t)
		p := n.provider(ctx, t)
		live := func(pod *v1.Pod) {
			t.Helper()
			must(t, p.CreatePod(t.Context(), pod))
			time.Sleep(time.Second)
			remove(t, p, pod)
		}
		live(newPod("old", v1.RestartPolicyAlways, "sleep"))
		time.Sleep(31 * 24 * time.Hour)
		live(newPod("new", v1.RestartPolicyAlways, "sleep"))
		for name, want := range map[string]bool{"old": false, "new": true} {
			_, err := os.Stat(filepath.Join(n.root, "log", "default_"+name+"_uid-"+name))
			if (err == nil) != want {
				t.Errorf("the logs of pod %q: %v", name, err)
			}
		}
	})
}
