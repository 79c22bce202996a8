package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/exectest"
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

// TestHangingCredentials: a program for credentials that does not end does not hold up this one.
func TestHangingCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	exectest.Write(t, plugin, "#!/bin/sh\nwhile [ -e "+plugin+" ]; do sleep 0.1; done\n")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := dial(ctx, Config{rest: &rest.Config{Host: "https://127.0.0.1:1", ExecProvider: &api.ExecConfig{
		Command: plugin, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
	}}}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestUntrustedServer: the advice about a cluster's certificate is the kubeconfig.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	err := failure.WithAdvice(cause(&url.Error{Op: "Get", URL: "https://c.example/version", Err: x509.UnknownAuthorityError{}}))
	const want = "x509: certificate signed by unknown authority: add the server's CA certificate to those of this machine or to the kubeconfig"
	if err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
