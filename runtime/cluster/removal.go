package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// Stop deletes the pod and waits until it is gone. A deadline of ctx shortens its grace period.
func (p *Pods) Stop(ctx context.Context, pod *v1.Pod) error {
	if there, _ := p.cache.get(podspec.NameOf(pod)); there != nil {
		if err := p.remove(ctx, there); err != nil {
			return fmt.Errorf("stopping pod %q: %w", pod.Name, err)
		}
	}
	p.cache.forget(podspec.NameOf(pod))
	p.setEnded(pod.UID, nil)
	return nil
}

// end removes a pod of the cluster whose status stays as given, for as long as this program runs.
func (p *Pods) end(ctx context.Context, uid types.UID, there *v1.Pod, st v1.PodStatus) error {
	p.setEnded(uid, &st)
	err := p.remove(ctx, there)
	if err != nil {
		p.setEnded(uid, nil)
	}
	return err
}

// setEnded sets the status of a pod of the input that this program ends, nil for none.
func (p *Pods) setEnded(uid types.UID, st *v1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st == nil {
		delete(p.ended, uid)
	} else {
		p.ended[uid] = *st
	}
}

// remove deletes a pod of the cluster and waits until it is gone.
func (p *Pods) remove(ctx context.Context, there *v1.Pod) error {
	changes, cancel := p.cache.subscribe(podspec.NameOf(there))
	defer cancel()
	asked, wait := false, time.Duration(0)
	for {
		if now, _ := p.cache.get(podspec.NameOf(there)); now == nil || now.UID != there.UID {
			return nil
		}
		if err := p.Lost(); err != nil {
			return leftError{err, nil, nil}
		}
		err := p.removeStep(ctx, there, &asked)
		switch {
		case err == nil:
			wait = goneInterval
		case isTransient(err):
			wait = min(max(2*wait, time.Second), goneInterval)
		default:
			return requestError("deleting the pod", err)
		}
		select {
		case <-changes:
		case <-time.After(wait):
		case <-ctx.Done():
			if asked && errors.Is(err, ctx.Err()) {
				err = nil // the request was to ask whether it is gone
			}
			return leftError{context.Cause(ctx), err, p.Finalizers(there)}
		}
	}
}

// removeStep asks the server to delete the pod, or later whether it is gone.
func (p *Pods) removeStep(ctx context.Context, there *v1.Pod, asked *bool) error {
	var err error
	if *asked {
		now := &v1.Pod{}
		if err = p.c.get(ctx, podspec.NameOf(there), now); err == nil && now.UID != there.UID {
			p.cache.remove(there)
		}
	} else {
		o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(there.UID)), GracePeriodSeconds: shortened(ctx, there)}
		err = p.c.limited(ctx, func() error {
			return p.c.rest.Delete().Namespace(there.Namespace).Resource("pods").Name(there.Name).Body(&o).Do(ctx).Error()
		})
		*asked = err == nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		p.cache.remove(there)
		return nil
	}
	return err
}

// shortened returns a grace period that ends before ctx does, nil if the pod's own one does.
func shortened(ctx context.Context, pod *v1.Pod) *int64 {
	end, ok := ctx.Deadline()
	if left := time.Until(end); ok && left < podspec.GracePeriod(pod) {
		return new(max(int64(left.Seconds()), 1))
	}
	return nil
}

// Finalizers returns what somebody has to remove before a pod is gone that is being deleted, none for any other.
func (p *Pods) Finalizers(pod *v1.Pod) []string {
	there, _ := p.cache.get(podspec.NameOf(pod))
	if there == nil || there.DeletionTimestamp == nil {
		return nil
	}
	return there.Finalizers
}

// leftError says that a pod may still be there.
type leftError struct {
	cause, last error
	finalizers  []string
}

func (e leftError) Error() string {
	return fmt.Sprintf("waiting until the pod is gone: %v; %s", e.cause, e.Left())
}

func (e leftError) Unwrap() error { return e.cause }

// Left says what is left.
func (e leftError) Left() string {
	switch {
	case e.last != nil:
		return "the pod may still be there: " + words(e.last)
	case len(e.finalizers) > 0:
		return "the pod stays until its finalizers are removed: " + strings.Join(e.finalizers, ", ")
	}
	return "the cluster is still deleting the pod"
}

// Fail has the kubelet end the pod, by its deadline, so that its logs stay. Its status has the given
// reason from now on, as long as this program runs.
func (p *Pods) Fail(ctx context.Context, pod *v1.Pod, reason, message string) error {
	there, _ := p.cache.get(podspec.NameOf(pod))
	var err error
	switch {
	case !isOf(there, pod) || podspec.Ended(there.Status.Phase):
	case there.Spec.NodeName == "":
		err = p.end(ctx, pod.UID, there, there.Status)
	default:
		err = p.expire(ctx, there)
	}
	if err != nil {
		return err
	}
	st, err := p.Status(ctx, pod)
	st.Phase, st.Reason, st.Message = v1.PodFailed, reason, message
	p.setEnded(pod.UID, &st)
	return err
}

// expire sets a pod's deadline to the least that there is, and waits until it has ended.
func (p *Pods) expire(ctx context.Context, there *v1.Pod) error {
	changes, cancel := p.cache.subscribe(podspec.NameOf(there))
	defer cancel()
	patch := map[string]any{"metadata": map[string]any{"uid": there.UID}, "spec": map[string]any{"activeDeadlineSeconds": 1}}
	err := retry(ctx, func() error { return p.c.patch(ctx, there, patch, &v1.Pod{}) })
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return requestError("ending the pod", err)
	}
	for {
		now, _ := p.cache.get(podspec.NameOf(there))
		if now == nil || now.UID != there.UID || podspec.Ended(now.Status.Phase) {
			return nil
		}
		if err := p.Lost(); err != nil {
			return err
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
