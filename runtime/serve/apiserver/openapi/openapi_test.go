package openapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/serve/apiserver/openapi"
)

// ask asks for a path, with headers.
func ask(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	openapi.Handler().ServeHTTP(w, r)
	return w
}

// TestHash: what has the hash of a document in its URL never changes.
func TestHash(t *testing.T) {
	t.Parallel()
	got := ask(t, "/openapi/v3")
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(got.Body.Bytes(), &index); err != nil || got.Header().Get("Etag") == "" {
		t.Fatalf("%v, %v: %s", err, got.Header(), got.Body)
	}
	if len(index.Paths) != len(resources) {
		t.Errorf("got %d documents, want %d: %s", len(index.Paths), len(resources), got.Body)
	}
	for group, at := range index.Paths {
		path, hash, ok := strings.Cut(at.ServerRelativeURL, "?hash=")
		if !ok || path != "/openapi/v3/"+group {
			t.Fatalf("%s is at %s", group, at.ServerRelativeURL)
		}
		got := ask(t, at.ServerRelativeURL)
		if got.Code != http.StatusOK || !json.Valid(got.Body.Bytes()) || got.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d, %v", group, got.Code, got.Header())
		}
		etag := got.Header().Get("Etag")
		if etag != `"`+hash+`"` || got.Header().Get("Cache-Control") != "public, immutable" || got.Header().Get("Expires") == "" {
			t.Errorf("%s, with its hash: %v", group, got.Header())
		}
		if got := ask(t, path, "If-None-Match", etag); got.Code != http.StatusNotModified || got.Body.Len() != 0 {
			t.Errorf("%s, with what the client has: %d, %d bytes", group, got.Code, got.Body.Len())
		}
		got = ask(t, path+"?hash=OLD")
		if got.Code != http.StatusMovedPermanently || got.Header().Get("Location") != at.ServerRelativeURL {
			t.Errorf("%s, with another hash: %d, %v", group, got.Code, got.Header())
		}
		if got := ask(t, path); got.Code != http.StatusOK || got.Header().Get("Cache-Control") != "" {
			t.Errorf("%s, without a hash: %d, %v", group, got.Code, got.Header())
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const (
		v2       = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
		v3       = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
		v2Answer = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	)
	for _, tt := range []struct {
		path, accept string
		want         int
		contentType  string
	}{
		{"/openapi/v3", "application/json, */*", 200, "application/json"},
		{"/openapi/v3/api/v1", "application/json", 200, "application/json"},
		{"/openapi/v3/api/v1", v3 + ", application/json;q=0.9", 200, "application/json"},
		{"/openapi/v3/api/v1", "*/*", 200, "application/json"},
		{"/openapi/v3/api/v1", "application/*", 200, "application/json"},
		{"/openapi/v3/api/v1", v3, 406, ""},
		{"/openapi/v3/", "", 404, "text/plain; charset=utf-8"},
		{"/openapi/v3/apis/apps", "", 404, "text/plain; charset=utf-8"},
		{"/openapi/v3/apis/policy/v1", "", 404, "text/plain; charset=utf-8"},
		{"/openapi", "", 404, "text/plain; charset=utf-8"},
		{"/openapi/v2", "", 200, "application/json"},
		{"/openapi/v2", "application/json", 200, "application/json"},
		{"/openapi/v2", v2, 200, v2Answer},
		{"/openapi/v2", v2Answer, 200, v2Answer},
		{"/openapi/v2", v3, 406, ""},
	} {
		var header []string
		if tt.accept != "" {
			header = []string{"Accept", tt.accept}
		}
		h := ask(t, tt.path, header...)
		if got := h.Header().Get("Content-Type"); h.Code != tt.want || got != tt.contentType {
			t.Errorf("%s, %q: got %d %q, want %d %q", tt.path, tt.accept, h.Code, got, tt.want, tt.contentType)
		}
	}
}
