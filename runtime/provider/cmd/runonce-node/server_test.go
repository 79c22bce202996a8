package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer returns a client of a server that knows two users by their tokens, of whom one may use the node.
func apiServer(t *testing.T) kubernetes.Interface {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		answer(t, w, r, func(review *authentication.TokenReview) {
			review.Status.User.Username = review.Spec.Token
			review.Status.Authenticated = review.Spec.Token == "admin" || review.Spec.Token == "nobody"
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		answer(t, w, r, func(review *authorization.SubjectAccessReview) {
			at := review.Spec.ResourceAttributes
			review.Status.Allowed = review.Spec.User == "admin" && at.Resource == "nodes" && at.Subresource == "proxy" && at.Name == nodeName
		})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	must(t, err)
	return client
}

// answer answers with the object of the request, changed.
func answer[T any](t *testing.T, w http.ResponseWriter, r *http.Request, change func(*T)) {
	t.Helper()
	object := new(T)
	if err := json.NewDecoder(r.Body).Decode(object); err != nil {
		t.Error(err)
	}
	change(object)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		t.Error(err)
	}
}

// TestAuthorization: the API server says who may use the port.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, token string
		want        int
	}{
		{webhook, "", http.StatusUnauthorized},
		{webhook, "stranger", http.StatusUnauthorized},
		{webhook, "nobody", http.StatusForbidden},
		{webhook, "admin", http.StatusOK},
		{alwaysAllow, "", http.StatusOK},
	} {
		t.Run(c.mode+" "+c.token, func(t *testing.T) {
			t.Parallel()
			o := options{name: nodeName, ip: "127.0.0.1", address: "127.0.0.1", authorization: c.mode}
			h, err := guarded(o, apiServer(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pods") }))
			must(t, err)
			l, err := listen(t.Context(), o)
			must(t, err)
			ended := make(chan error, 1)
			go func() { ended <- serve(t.Context(), l, h) }()
			t.Cleanup(func() { must(t, <-ended) })
			client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+"/runningpods/", nil)
			must(t, err)
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := client.Do(req)
			must(t, err)
			must(t, resp.Body.Close())
			want(t, "status", resp.StatusCode, c.want)
		})
	}
}
