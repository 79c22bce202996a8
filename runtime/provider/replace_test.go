package provider_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/provider"
)

// TestSameName: a pod whose name another one still has waits for the end of that one, whichever
// way virtual-kubelet learns of it.
func TestSameName(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(p *provider.Provider, pod *v1.Pod) error{
		"created": func(p *provider.Provider, pod *v1.Pod) error { return p.CreatePod(context.Background(), pod) },
		"updated": func(p *provider.Provider, pod *v1.Pod) error { return p.UpdatePod(context.Background(), pod) },
		"deleted before": func(p *provider.Provider, pod *v1.Pod) error {
			return errors.Join(p.DeletePod(context.Background(), newPod("web-0", "", "")), p.CreatePod(context.Background(), pod))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, r := newNode(t).watched(t.Context(), t)
				create(t, p, newPod("web-0", v1.RestartPolicyAlways, "stay"))
				next := newPod("web-0", v1.RestartPolicyAlways, "sleep")
				next.UID = "next"
				must(t, add(p, next))
				must(t, p.CreatePod(t.Context(), next)) // safe to repeat
				time.Sleep(29 * time.Second)
				got := podNamed(t, p, "web-0")
				want(t, "before the end of the old one", string(got.UID)+" "+line(got), "next web-0 Pending ContainerCreating")
				time.Sleep(2 * time.Second)
				synctest.Wait()
				want(t, "notified", r.lines(), []string{"web-0 Running running 0", "web-0 Failed exit 137", "web-0 Running running 0"})
				got = podNamed(t, p, "web-0")
				want(t, "after it", string(got.UID)+" "+line(got), "next web-0 Running running 0")
			})
		})
	}
}

// TestSameNameTwice: the third pod of a name waits for the first one, although the second has ended
// before it began.
func TestSameNameTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.provider(t.Context(), t)
		for _, uid := range []types.UID{"first", "second", "third"} {
			pod := newPod("web-0", v1.RestartPolicyAlways, "stay")
			pod.UID = uid
			must(t, p.CreatePod(t.Context(), pod))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		want(t, "at first", n.sandboxes.Left(), []types.UID{"first"})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		want(t, "in the end", n.sandboxes.Left(), []types.UID{"third"})
	})
}

// TestKnownPodDiffers: virtual-kubelet compares the pod that it gets with that of the cluster, but
// not their UIDs. It has to call UpdatePod, which does.
func TestKnownPodDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).provider(t.Context(), t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		must(t, p.CreatePod(t.Context(), web))
		got := podNamed(t, p, "web")
		if cmp.Equal(got.Annotations, web.Annotations) {
			t.Error("the pods are equal")
		}
	})
}

// TestDeletedEarly: a pod that is deleted before it runs has terminated containers in the end.
func TestDeletedEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no address") }
		p, r := n.watched(t.Context(), t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		create(t, p, web)
		remove(t, p, web)
		want(t, "notified", r.lines(), []string{"web Pending ContainerCreating", "web Failed exit 137"})
	})
}

// TestDeletionIsRetried: until nothing of the pod is left, and by a later process.
func TestDeletionIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r := newNode(t), &notified{}
		var fixed atomic.Bool
		n.sandboxes.RemoveErr = func(*v1.Pod) error {
			if fixed.Load() {
				return nil
			}
			return errors.New("plugin failed")
		}
		ctx, cancel := context.WithCancel(t.Context())
		p := n.provider(ctx, t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		create(t, p, web)
		must(t, p.DeletePod(ctx, web))
		time.Sleep(time.Minute)
		want(t, "left", len(n.sandboxes.Left()), 1)
		cancel()
		synctest.Wait()
		later := n.provider(t.Context(), t)
		later.NotifyPods(t.Context(), r.note)
		must(t, later.DeletePod(t.Context(), web))
		time.Sleep(time.Minute)
		fixed.Store(true)
		time.Sleep(5 * time.Minute)
		want(t, "left", len(n.sandboxes.Left()), 0)
		want(t, "notified last", r.lines()[len(r.lines())-1], "web Failed exit 143")
	})
}

// TestOnlyOwnPods: pods of the command line, and of another node on the same root, are none of the
// provider's.
func TestOnlyOwnPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, cancel := context.WithCancel(t.Context())
		pods := n.pods(ctx, t)
		must(t, pods.Sync(ctx, newPod("static", v1.RestartPolicyAlways, "sleep")))
		for name, pod := range map[string]*v1.Pod{nodeName: newPod("ours", v1.RestartPolicyAlways, "sleep"), "other": newPod("theirs", v1.RestartPolicyAlways, "sleep")} {
			p, err := provider.New(ctx, pods, name, n.log)
			must(t, err)
			must(t, p.CreatePod(ctx, pod))
		}
		synctest.Wait()
		cancel()
		all, err := n.provider(t.Context(), t).GetPods(t.Context())
		must(t, err)
		var names []string
		for _, pod := range all {
			names = append(names, line(pod))
		}
		want(t, "pods", names, []string{"ours Running running 0"})
	})
}

// TestUpdateRestartsOnlyForImages: what else changes in a container, such as the variables of a
// service that has appeared, restarts nothing (HashContainer of pkg/kubelet/container).
func TestUpdateRestartsOnlyForImages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(c *v1.Container)
		want   string
	}{
		"environment": {func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "DB_SERVICE_HOST", Value: "192.0.2.9"}} }, "web Running running 0"},
		"command":     {func(c *v1.Container) { c.Args = []string{"stay"} }, "web Running running 0"},
		"image":       {func(c *v1.Container) { c.Image = otherImage }, "web Running running 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newNode(t).provider(t.Context(), t)
				web := newPod("web", v1.RestartPolicyAlways, "sleep")
				create(t, p, web)
				changed := web.DeepCopy()
				tc.change(&changed.Spec.Containers[0])
				must(t, p.UpdatePod(t.Context(), changed))
				time.Sleep(time.Hour)
				got := podNamed(t, p, "web")
				want(t, "after the update", line(got), tc.want)
			})
		})
	}
}

// TestEphemeralContainers: those that an update adds are started beside the containers of the pod, which go on, and end
// with it.
func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, r := n.watched(t.Context(), t)
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		create(t, p, web)
		for _, args := range [][]string{{"sleep"}, {"exit", "3"}} {
			web = web.DeepCopy()
			web.Spec.EphemeralContainers = append(web.Spec.EphemeralContainers, v1.EphemeralContainer{
				TargetContainerName: web.Spec.Containers[0].Name,
				EphemeralContainerCommon: v1.EphemeralContainerCommon{
					Name: "debug-" + args[0], Image: web.Spec.Containers[0].Image, Args: args, ImagePullPolicy: v1.PullIfNotPresent,
				},
			})
			must(t, p.UpdatePod(t.Context(), web))
			time.Sleep(time.Hour)
		}
		all := podNamed(t, p, "web").Status.EphemeralContainerStatuses
		if len(all) != 2 || all[0].State.Running == nil || all[1].State.Terminated == nil || all[1].State.Terminated.ExitCode != 3 || all[1].RestartCount != 0 {
			t.Errorf("ephemeral containers: %+v", all)
		}
		want(t, "the pod", line(podNamed(t, p, "web")), "web Running running 0")
		remove(t, p, web)
		want(t, "left", len(n.sandboxes.Left()), 0)
		want(t, "notified last", r.lines()[len(r.lines())-1], "web Failed exit 143")
	})
}
