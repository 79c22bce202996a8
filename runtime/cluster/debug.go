package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// Debug adds an ephemeral container to the pod, and returns when it runs or has ended.
func (p *Pods) Debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error {
	changes, err := p.Changes(ctx, pod) // none may be missed
	if err != nil {
		return err
	}
	if err := p.c.addEphemeral(ctx, podspec.NameOf(pod), c); err != nil {
		return errors.New(words(err))
	}
	for said := ""; ; {
		cs, err := p.containerStatus(ctx, pod, c.Name)
		switch wait := cs.State.Waiting; {
		case err != nil:
			return err
		case cs.State.Running != nil, cs.State.Terminated != nil:
			return nil
		case wait != nil && wait.Message != "":
			if err := waitingErrorOf(cs); failure.IsPermanent(err) {
				return err
			}
			if said != wait.Message {
				said = wait.Message
				p.o.Log.WarnContext(ctx, "the container does not run yet", "container", c.Name, "reason", wait.Reason, "message", said)
			}
		}
		select {
		case <-changes:
		case <-time.After(goneInterval): // in case that a change is not seen
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// addEphemeral does what client-go's UpdateEphemeralContainers does, by a patch as kubectl, which does not depend on the
// version of the pod.
func (c *client) addEphemeral(ctx context.Context, name types.NamespacedName, container v1.EphemeralContainer) error {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": []v1.EphemeralContainer{container}}})
	if err != nil {
		return err
	}
	return c.limited(ctx, func() error {
		return c.rest.Patch(types.StrategicMergePatchType).Namespace(name.Namespace).Resource("pods").Name(name.Name).SubResource("ephemeralcontainers").Body(body).Do(ctx).Error()
	})
}

// containerStatus returns the status of a container, zero if there is none yet.
func (p *Pods) containerStatus(ctx context.Context, pod *v1.Pod, container string) (v1.ContainerStatus, error) {
	var there v1.Pod
	if err := p.c.get(ctx, podspec.NameOf(pod), &there); err != nil {
		return v1.ContainerStatus{}, errors.New(words(err))
	}
	all := podspec.AllStatuses(there.Status)
	if i := slices.IndexFunc(all, func(cs v1.ContainerStatus) bool { return cs.Name == container }); i >= 0 {
		return all[i], nil
	}
	if podspec.Ended(there.Status.Phase) {
		return v1.ContainerStatus{}, fmt.Errorf("pod %q has ended: its phase is %s", podspec.FullName(pod), there.Status.Phase)
	}
	return v1.ContainerStatus{}, nil
}

// endTimeout bounds the wait until the kubelet has reported the end of a container that its runtime knows of.
const endTimeout = 5 * time.Second

// Ended says whether the newest instance of a container has ended. It waits a moment for that.
func (p *Pods) Ended(ctx context.Context, pod *v1.Pod, container string) (bool, error) {
	return poll(ctx, endTimeout, func() (bool, error) {
		cs, err := p.containerStatus(ctx, pod, container)
		return cs.State.Terminated != nil, err
	})
}
