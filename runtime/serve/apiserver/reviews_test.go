package apiserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhoAmI: who asks is told who that is.
func TestWhoAmI(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config, _ := newMachine().serve(t)
		config.ContentType = contentType
		r, err := clientOf(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		must(t, err)
		want(t, "user", fmt.Sprint(r.Status.UserInfo.Username, r.Status.UserInfo.Groups), "root[system:masters system:authenticated]")
	}
}

// TestCanI: what is allowed is what this server does.
func TestCanI(t *testing.T) {
	t.Parallel()
	c := newMachine().client(t).AuthorizationV1().SelfSubjectAccessReviews()
	of := func(verb, resource string) *authorizationv1.ResourceAttributes {
		resource, sub, _ := strings.Cut(resource, "/")
		resource, group, _ := strings.Cut(resource, ".")
		return &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub}
	}
	for what, allowed := range map[string]bool{
		"get pods": true, "list pods": true, "watch pods": true, "delete pods": true, "deletecollection pods": true, "create pods": false, "patch pods": false,
		"get nodes": true, "delete nodes": false, "get secrets": true, "create secrets": false, "get pods/log": true, "create pods/exec": true, "create pods/eviction": true,
		"patch pods/ephemeralcontainers": true, "get pods/none": false, "list pods.metrics.k8s.io": true, "watch pods.metrics.k8s.io": false,
		"watch deployments.apps": true, "patch deployments.apps": false, "get ingresses.networking.k8s.io": false, "get *": true, "get *.*": true, "create *.authorization.k8s.io": true, "* pods": false, "create selfsubjectreviews.authentication.k8s.io": true,
	} {
		verb, resource, _ := strings.Cut(what, " ")
		r, err := c.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: of(verb, resource)}}, metav1.CreateOptions{})
		must(t, err)
		want(t, what, r.Status.Allowed, allowed)
		want(t, what+" has a reason", r.Status.Reason == "this server does not do that, whoever asks", !allowed)
	}
	for verb, allowed := range map[string]bool{"get": true, "post": false} {
		r, err := c.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: verb},
		}}, metav1.CreateOptions{})
		must(t, err)
		want(t, verb, r.Status.Allowed, allowed)
	}
}

// TestReviewRefused: reviews of nothing, or of something else.
func TestReviewRefused(t *testing.T) {
	t.Parallel()
	m := newMachine()
	const authentication, authorization = "/apis/authentication.k8s.io/v1/", "/apis/authorization.k8s.io/v1/"
	for path, kind := range map[string]string{
		authentication + "selfsubjectreviews": "SelfSubjectReview", authorization + "selfsubjectaccessreviews": "SelfSubjectAccessReview",
		authorization + "selfsubjectrulesreviews": "SelfSubjectRulesReview",
	} {
		failed(t, path, m.ask(t, http.MethodPost, path, ""), http.StatusBadRequest, "the request has no body")
		failed(t, path, m.ask(t, http.MethodPost, path, `{"kind":"Pod","apiVersion":"v1"}`), http.StatusBadRequest, "the body of the request is no "+kind)
		_, name, _ := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/v1/")
		group, _, _ := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/")
		failed(t, path, m.ask(t, http.MethodPost, path+"/x", "{}"), http.StatusMethodNotAllowed, fmt.Sprintf(`create is not supported on resources of kind "%s.%s"`, name, group))
	}
	for _, body := range []string{`{}`, `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}`} {
		a := m.ask(t, http.MethodPost, authorization+"selfsubjectaccessreviews", body)
		s := decoded[metav1.Status](t, a)
		if a.code != http.StatusUnprocessableEntity || !strings.HasSuffix(s.Message, "exactly one of nonResourceAttributes or resourceAttributes must be specified") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}

// TestRules: what "kubectl auth can-i --list" prints.
func TestRules(t *testing.T) {
	t.Parallel()
	r, err := newMachine().client(t).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	must(t, err)
	var rules []string
	for _, rule := range r.Status.ResourceRules {
		rules = append(rules, fmt.Sprint(rule.Resources, rule.APIGroups, rule.Verbs))
	}
	for _, rule := range []string{"[pods] [] [get list watch delete deletecollection]", "[pods/log] [] [get]", "[nodes] [metrics.k8s.io] [get list]", "[services] [] [get list watch]"} {
		if !slices.Contains(rules, rule) {
			t.Errorf("%s is not among %q", rule, rules)
		}
	}
	want(t, "paths", fmt.Sprint(r.Status.NonResourceRules), "[{[get] [*]}]")
	want(t, "incomplete", r.Status.Incomplete, false)
}
