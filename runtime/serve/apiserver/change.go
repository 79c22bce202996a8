package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// deleteOptions reads how something is deleted: from the body, or from the parameters if there is none.
func (s *server) deleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	body, err := s.read(r, v1.SchemeGroupVersion.WithKind("DeleteOptions"))
	o, ok := body.(*metav1.DeleteOptions)
	switch {
	case errors.Is(err, errNoBody):
		o = &metav1.DeleteOptions{}
		if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case err != nil || !ok:
		return nil, cmp.Or(err, notA("DeleteOptions"))
	}
	return o, checkDelete(o)
}

// checkDelete refuses what the API server refuses. What looks like a dry run must not be anything else.
func checkDelete(o *metav1.DeleteOptions) error {
	if problems := validation.ValidateDeleteOptions(o); len(problems) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("DeleteOptions").GroupKind(), "", problems)
	}
	return nil
}

// dryRun reads the parameter of requests that are no deletion.
func dryRun(values url.Values) ([]string, error) {
	o := &metav1.DeleteOptions{DryRun: values["dryRun"]}
	return o.DryRun, checkDelete(o)
}

// remove stops a pod and removes it, as "runonce down" does. The answer does not wait for that.
func (s *server) remove(w http.ResponseWriter, r *http.Request, q request) {
	f, err := s.codecs.accepted(r, true) // before anything is done
	var o *metav1.DeleteOptions
	if err == nil {
		o, err = s.deleteOptions(r)
	}
	var pod *v1.Pod
	if err == nil {
		pod, err = s.findPod(r.Context(), q)
	}
	if err == nil {
		pod, err = s.begin(r.Context(), pod, o)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusOK, s.represent(query{request: q, include: metav1.IncludeMetadata}, f.as, pod, true))
}

func (s *server) findPod(ctx context.Context, q request) (*v1.Pod, error) {
	o, err := s.find(ctx, q)
	pod, ok := o.(*v1.Pod)
	if err == nil && !ok {
		err = apierrors.NewNotFound(q.resource.groupResource(), q.name)
	}
	return pod, err
}

// removeAll removes the pods of a collection.
func (s *server) removeAll(w http.ResponseWriter, r *http.Request, q request) {
	f, err := s.codecs.accepted(r, true)
	var o *metav1.DeleteOptions
	if err == nil {
		o, err = s.deleteOptions(r)
	}
	var of query
	if err == nil {
		of, err = s.parseQuery(q, r.URL.Query())
	}
	var all []objects.Object
	var list metav1.ListMeta
	if err == nil {
		all, list, err = s.collect(r.Context(), of)
	}
	for i, one := range all {
		if pod, ok := one.(*v1.Pod); ok && err == nil {
			all[i], err = s.begin(r.Context(), pod, o)
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusOK, s.collection(of, f.as, all, list))
}

// evict is remove for those who ask for an eviction. There are no disruption budgets.
func (s *server) evict(w http.ResponseWriter, r *http.Request, q request) {
	_, err := s.codecs.accepted(r, false)
	var o *metav1.DeleteOptions
	if err == nil {
		o, err = s.evictionOptions(r, q)
	}
	var pod *v1.Pod
	if err == nil {
		pod, err = s.findPod(r.Context(), q)
	}
	if err == nil {
		_, err = s.begin(r.Context(), pod, o)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, r, http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// evictionOptions reads how a pod is evicted (EvictionREST of pkg/registry/core/pod/storage).
func (s *server) evictionOptions(r *http.Request, q request) (*metav1.DeleteOptions, error) {
	body, err := s.read(r, policyv1.SchemeGroupVersion.WithKind("Eviction"))
	e, ok := body.(*policyv1.Eviction)
	switch {
	case err != nil || !ok:
		return nil, cmp.Or(err, notA("Eviction"))
	case e.Name != "" && e.Name != q.name:
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	dry, err := dryRun(r.URL.Query())
	if err != nil {
		return nil, err
	}
	o := cmp.Or(e.DeleteOptions, &metav1.DeleteOptions{})
	switch {
	case len(o.DryRun) == 0:
		o.DryRun = dry
	case len(dry) > 0 && !slices.Equal(dry, o.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", dry, o.DryRun))
	}
	return o, checkDelete(o)
}

// checkPreconditions compares the pod with the one that is meant (BeforeDelete of k8s.io/apiserver/pkg/registry/rest).
func checkPreconditions(pod *v1.Pod, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != pod.UID:
		return apierrors.NewConflict(podsResource, pod.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID))
	case p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(podsResource, pod.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion))
	}
	return nil
}

// begin begins to remove a pod, unless that has begun before, and returns it as it is then.
func (s *server) begin(ctx context.Context, pod *v1.Pod, o *metav1.DeleteOptions) (*v1.Pod, error) {
	if err := checkPreconditions(pod, o.Preconditions); err != nil {
		return pod, err
	}
	grace := podspec.TerminationGrace(pod)
	if g := o.GracePeriodSeconds; g != nil {
		seconds := *g
		if seconds < 0 {
			seconds = 1 // as in the API server
		}
		if seconds < int64(grace/time.Second) { // larger ones may be too large for a duration
			grace = time.Duration(seconds) * time.Second
		}
	}
	if !slices.Contains(o.DryRun, metav1.DryRunAll) {
		s.removeLater(ctx, pod, grace)
	}
	pod = shallow(pod)
	if end := metav1.NewTime(time.Now().Add(grace)); pod.DeletionTimestamp == nil || end.Before(pod.DeletionTimestamp) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, new(int64(grace.Seconds()))
	}
	return pod, nil
}

// removal is one that has begun.
type removal struct {
	deadline time.Time // of the pod's containers
	cancel   context.CancelFunc
	done     chan struct{}
}

// removeLater removes a pod. It is not over with the request. One that has begun before goes on, unless the pod has less
// time now: it is then begun again.
func (s *server) removeLater(ctx context.Context, pod *v1.Pod, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.removals[pod.UID], &removal{deadline: time.Now().Add(grace), done: make(chan struct{})}
	if before != nil {
		if !now.deadline.Before(before.deadline) {
			return
		}
		before.cancel()
	}
	s.removals[pod.UID] = now
	ctx, now.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(now.done)
		defer now.cancel()
		if before != nil {
			<-before.done
		}
		err := s.Pods.Remove(ctx, pod, grace)
		if err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "could not remove the pod", "pod", podspec.FullName(pod), "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.removals[pod.UID] == now {
			delete(s.removals, pod.UID)
		}
	}()
}
