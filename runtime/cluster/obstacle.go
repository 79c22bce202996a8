package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

const (
	// stuckAfter is how long the containers of a scheduled pod may be on their way before its
	// events are looked at.
	stuckAfter = 5 * time.Second
	// deletingWait is when a pod is looked at again that somebody else deletes.
	deletingWait = time.Second
)

// rejection is the error of a pod that the cluster does not accept.
type rejection struct{ error }

func rejected(reason, message string) error {
	return rejection{&failure.Error{Why: reason, Final: true, Err: errors.New(message)}}
}

func (e rejection) Unwrap() error { return e.error }

// Rejected says that the pod was not accepted, and so did not fail.
func (rejection) Rejected() bool { return true }

// obstacle says what keeps a pod of the cluster from running, nil for nothing.
func (p *Pods) obstacle(ctx context.Context, pod *v1.Pod) error {
	if podspec.Ended(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return nil
	}
	if c := podspec.Condition(pod.Status, v1.PodScheduled); c.Status == v1.ConditionFalse {
		return p.unschedulable(ctx, pod, c)
	}
	if err := waitingError(pod); err != nil {
		return err
	}
	return p.stuck(ctx, pod)
}

// unschedulable waits for a node, and then removes the pod, so that it does not run later.
func (p *Pods) unschedulable(ctx context.Context, pod *v1.Pod, c v1.PodCondition) error {
	if left := p.o.ScheduleTimeout - p.waited(pod.UID); left > 0 {
		return &failure.Error{Why: c.Reason, Wait: left, Err: fmt.Errorf("%s: %s", c.Reason, c.Message)}
	}
	if err := p.end(ctx, types.UID(pod.Annotations[annotationContent]), pod, pod.Status); err != nil {
		return err
	}
	return rejected(c.Reason, c.Message)
}

// waitingError is the error of a container that the kubelet cannot create or start. How often it tries
// to start one is counted as restarts, not as errors.
func waitingError(pod *v1.Pod) error {
	for _, cs := range podspec.Statuses(pod.Status) {
		if err := waitingErrorOf(cs); err != nil {
			return err
		}
	}
	return nil
}

func waitingErrorOf(cs v1.ContainerStatus) error {
	w := cs.State.Waiting
	if w == nil {
		return nil
	}
	if err := startError(cs); err != nil {
		return err
	}
	err := fmt.Errorf("container %q: %s: %s", cs.Name, w.Reason, w.Message)
	switch w.Reason {
	case "InvalidImageName", "ErrImageNeverPull":
		return &failure.Error{Why: w.Reason, Final: true, Err: err}
	case "ErrImagePull", "ImagePullBackOff":
		// The kubelet tries for ever, whatever the registry says.
		return &failure.Error{Why: failure.ReasonErrImagePull, Final: noAccess.MatchString(w.Message), Err: err}
	case "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
		"CreateContainerConfigError", "CreateContainerError", "PreCreateHookError":
		return &failure.Error{Why: w.Reason, Final: nonRoot.MatchString(w.Message), Err: err}
	}
	return nil
}

// noAccess matches what a kubelet says about an image that the registry does not have, or not for this
// user: the class and the words of containerd, and those of registries (distribution's registry/api/errcode).
var noAccess = regexp.MustCompile("code = NotFound|authorization failed|401 Unauthorized|403 Forbidden|unauthorized: |denied: requested access|manifest unknown")

// nonRoot matches what a kubelet says about a container that would run as root and must not
// (pkg/kubelet/kuberuntime.verifyRunAsNonRoot). That does not change by itself.
var nonRoot = regexp.MustCompile("runAsNonRoot|breaks non-root policy")

// startError is the error of a command that can never be started, nil if there is none.
func startError(cs v1.ContainerStatus) error {
	text := ""
	if w := cs.State.Waiting; w.Reason == failure.ReasonRunError {
		text = w.Message
	} else if t := podspec.LastTermination(cs); t != nil && t.Reason == "StartError" {
		text = t.Message
	}
	message := failure.RuntimeMessage(errors.New(text), "")
	if !failure.IsPermanentMessage(message) {
		return nil
	}
	return &failure.Error{Why: failure.ReasonRunError, Final: true, Err: fmt.Errorf("container %q: %s: %s", cs.Name, failure.ReasonRunError, message)}
}

// stuck returns the last warning about a pod none of whose containers has been started for a while.
func (p *Pods) stuck(ctx context.Context, pod *v1.Pod) error {
	for _, cs := range podspec.Statuses(pod.Status) {
		if cs.State.Running != nil || podspec.LastTermination(cs) != nil {
			return nil
		}
	}
	since := p.trace.scheduled(pod)
	if since.IsZero() {
		return nil
	}
	if left := stuckAfter - time.Since(since); left > 0 {
		return &failure.Error{Why: "ContainerCreating", Wait: left, Err: fmt.Errorf("the containers are being created")}
	}
	events, err := p.events(ctx, pod)
	switch {
	case apierrors.IsForbidden(err):
		return nil // nothing is known
	case err != nil:
		return requestError("looking at the pod's events", err)
	}
	if e, ok := lastWarning(events); ok {
		return &failure.Error{Why: e.Reason, Err: fmt.Errorf("%s: %s", e.Reason, strings.TrimSpace(e.Message))}
	}
	return nil
}

// lastWarning returns the last warning, and false if there is none or what it was about has succeeded since:
// the pod has got its node, or its volumes and network, without which no image is pulled.
func lastWarning(events []v1.Event) (v1.Event, bool) {
	for _, e := range slices.Backward(events) {
		switch {
		case e.Type == v1.EventTypeWarning:
			return e, true
		case slices.Contains([]string{"Scheduled", "Pulling", "Pulled"}, e.Reason):
			return v1.Event{}, false
		}
	}
	return v1.Event{}, false
}
