package cluster

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runonce/runonce/internal/failure"
)

// TestErrors: which errors of requests may pass, and which are about the user.
func TestErrors(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err                      error
		transient, denied, quota bool
	}{
		{err: errors.New("connection refused"), transient: true},
		{err: apierrors.NewTooManyRequests("busy", 2), transient: true},
		{err: apierrors.NewInternalError(errors.New("etcd")), transient: true},
		{err: apierrors.NewServiceUnavailable("starting"), transient: true},
		{err: apierrors.NewUnauthorized("who are you?"), denied: true},
		{err: apierrors.NewForbidden(pods, "web", errors.New(`User "x" cannot create resource "pods" in API group "" in the namespace "y"`)), denied: true},
		{err: apierrors.NewForbidden(pods, "web", errors.New("exceeded quota: none")), quota: true},
		{err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil)},
	} {
		if isTransient(test.err) != test.transient || isDenied(test.err) != test.denied || isQuota(test.err) != test.quota {
			t.Errorf("%v: transient: %v, denied: %v, quota: %v", test.err, isTransient(test.err), isDenied(test.err), isQuota(test.err))
		}
	}
	err := requestError("creating the pod", apierrors.NewTooManyRequests("busy", 2))
	if failure.RetryAfter(err).Seconds() != 2 || failure.IsPermanent(err) {
		t.Errorf("%v: after %v", err, failure.RetryAfter(err))
	}
	err = denial(apierrors.NewUnauthorized("who are you?"))
	if n, limited := failure.Retries(err); failure.IsPermanent(err) || !limited || n == 0 {
		t.Errorf("%v: %d retries", err, n)
	}
	status := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusConflict, Message: "a conflict"}}
	if err := requestError("deleting the pod", status); !failure.IsPermanent(err) || words(err) != "a conflict" {
		t.Errorf("%v: %s", err, words(err))
	}
}
