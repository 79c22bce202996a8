package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// TestPaths: paths that seem to be others reach nothing that they should not, and nothing panics.
func TestPaths(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.withLog(t, "secret")
	m.set(mirror.Pods, pod("default", "web"))
	long := strings.Repeat("x", 50000)
	for path, code := range map[string]int{
		"/api/v1/namespaces/..%2f../pods":              http.StatusNotFound,
		"/api/v1/namespaces/%2e%2e/pods/web":           http.StatusNotFound,
		"/api/v1/namespaces/%2e%2e/pods":               http.StatusOK, // of a namespace that has none
		"/api/v1/namespaces/default%2fpods/web":        http.StatusOK, // as in the API server, which decodes first, too
		"/api/v1/namespaces/default/pods%2fweb":        http.StatusOK,
		"/api/v1/namespaces/default/pods/%2e%2e/log":   http.StatusNotFound,
		"/api/v1/namespaces/default/pods/web%00/log":   http.StatusNotFound,
		"/api/v1/namespaces/default/pods/web/log%2f..": http.StatusNotFound,
		"/api/v1/namespaces/default/pods/web/%2e%2e":   http.StatusNotFound,
		"/api/v1/namespaces/%2f/pods":                  http.StatusNotFound,
		"/api/v1/namespaces/default/pods/%2f/web":      http.StatusNotFound,
		"/api/v1/%2f":                       http.StatusOK, // the end of a path
		"/api/%2f":                          http.StatusOK, // to net/http, the end of a path, too
		"/api/%2f%2f":                       http.StatusNotFound,
		"/api/%2fv1/pods":                   http.StatusNotFound,
		"/apis/%2f":                         http.StatusOK,
		"/apis/%2f%2f%2f":                   http.StatusNotFound,
		"/apis/%2fv1":                       http.StatusNotFound,
		"/apis/%2fv1/pods":                  http.StatusNotFound,
		"/apis/metrics.k8s.io/%2f/pods":     http.StatusNotFound,
		"/api/v1/nodes/%2f/proxy/pods":      http.StatusNotFound,
		"/api/v1/nodes/node/proxy/%2f/pods": http.StatusNotFound,
		"/api/v1/namespaces/" + long + "/pods/" + long:                          http.StatusNotFound,
		"/api/" + strings.Repeat("v1/", 10000):                                  http.StatusNotFound,
		"/api/v1/namespaces/" + "%ff%fe" + "/pods/%80":                          http.StatusNotFound,
		"/api/v1/namespaces/default/pods/web/log?container=../../../etc/passwd": http.StatusBadRequest,
	} {
		a := m.get(t, path)
		want(t, path[:min(len(path), 100)], a.code, code)
		if code != http.StatusOK {
			decoded[metav1.Status](t, a)
		}
	}
	// What is not clean is redirected to what it means, and not answered.
	for path, location := range map[string]string{
		"/api/v1/namespaces/../../../metrics": "/metrics",
		"/api/v1//pods":                       "/api/v1/pods",
		"/api/v1/./pods?watch=1":              "/api/v1/pods?watch=1",
		"/api/v1/nodes/node/proxy/../x":       "/api/v1/nodes/node/x",
	} {
		a := m.get(t, path)
		if a.code/100 != 3 || a.header.Get("Location") != location {
			t.Errorf("%s: %d %v", path, a.code, a.header)
		}
	}
	// Who asks the proxy for a path that is not clean is sent to one of this server, which is also the kubelet.
	if a := m.get(t, "/api/v1/nodes/node/proxy/%2e%2e/pods"); a.code == http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// bodies are requests with bodies, by path.
var bodies = map[string]struct{ method, contentType string }{
	podsPath + "/web":          {http.MethodDelete, "application/json"},
	podsPath:                   {http.MethodDelete, "application/json"},
	podsPath + "/web/eviction": {http.MethodPost, "application/json"},
	debugPath:                  {http.MethodPatch, string(types.StrategicMergePatchType)},
	"/apis/authentication.k8s.io/v1/selfsubjectreviews": {http.MethodPost, "application/json"},
}

// TestLargeBodies: bodies that are too large, or have no end, are refused with a Status.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	limited := http.MaxBytesHandler(m.handler, 1000)
	for path, c := range bodies {
		r := httptest.NewRequestWithContext(t.Context(), c.method, path, endless{})
		r.Header.Set("Content-Type", c.contentType)
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, r)
		s := failed(t, path, answer{w.Code, w.Header(), w.Body.String()}, http.StatusRequestEntityTooLarge, "Request entity too large: limit is 1000")
		want(t, "reason", s.Reason, metav1.StatusReasonRequestEntityTooLarge)
	}
	want(t, "calls", m.taken(), "")
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(data []byte) (int, error) {
	for i := range data {
		data[i] = ' '
	}
	return len(data), nil
}

// TestGuarded: the limit of the server for bodies is told as one of the API.
func TestGuarded(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	dir, err := os.MkdirTemp("", "ro-") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "s")
	s, err := serve.Listen(t.Context(), serve.Options{Address: serve.Address{Socket: path}, Handler: m.handler, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	must(t, err)
	_, err = io.WriteString(conn, "DELETE "+podsPath+"/web HTTP/1.1\r\nHost: node\r\nContent-Length: 100000000\r\n\r\n")
	must(t, err)
	_, err = io.Copy(conn, io.LimitReader(endless{}, 3<<20+1))
	must(t, err)
	text, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(text), "HTTP/1.1 413 ") || !strings.Contains(string(text), `"message":"Request entity too large: limit is 3145728"`) {
		t.Errorf("%v %s", err, text)
	}
	must(t, conn.Close())
	want(t, "calls", m.taken(), "")
	cancel()
	must(t, <-ended)
}

// TestOddBodies: bodies that are nested deeply, of the wrong kind, or no text, are refused, and do nothing.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	const deep = 200000
	for name, body := range map[string]string{
		"arrays":         strings.Repeat("[", deep),
		"objects":        strings.Repeat(`{"spec":`, deep),
		"in an unknown":  `{"x":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "}",
		"YAML":           strings.Repeat("- ", deep),
		"YAML mappings":  strings.Repeat("{a: ", deep),
		"aliases":        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
		"wrong kind":     `{"kind":"Node","apiVersion":"v1"}`,
		"a list":         `{"kind":"PodList","apiVersion":"v1"}`,
		"a status":       `{"kind":"Status","apiVersion":"v1"}`,
		"unknown kind":   `{"kind":"Thing","apiVersion":"things/v9"}`,
		"wrong types":    `{"metadata":7,"spec":"x","gracePeriodSeconds":"soon"}`,
		"a number":       "7",
		"a word":         `"x"`,
		"invalid UTF-8":  "\xff\xfe\x00",
		"protobuf":       "k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"short protobuf": "k8s\x00",
	} {
		for path, c := range bodies {
			a := m.ask(t, c.method, path, body, "Content-Type", c.contentType)
			if a.code/100 != 4 {
				t.Errorf("%s to %s: %d %s", name, path, a.code, a.body)
			}
			decoded[metav1.Status](t, a)
		}
	}
	want(t, "calls", m.taken(), "")
}

// TestConflictingParameters: parameters that contradict each other, or themselves.
func TestConflictingParameters(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"), pod("default", "b"))
	for query, expect := range map[string]int{
		"watch=false&watch=true":                                    http.StatusOK, // the first counts
		"limit=1&limit=x":                                           http.StatusOK,
		"limit=-1":                                                  http.StatusOK,
		"limit=9223372036854775807":                                 http.StatusOK,
		"limit=9223372036854775808":                                 http.StatusBadRequest,
		"labelSelector=a&labelSelector=(":                           http.StatusOK,
		"continue=x&watch=0":                                        http.StatusBadRequest,
		"resourceVersion=99999999999999999999":                      http.StatusBadRequest,
		"resourceVersionMatch=Exact&resourceVersion=0":              http.StatusUnprocessableEntity,
		"resourceVersionMatch=Sometimes&resourceVersion=1":          http.StatusUnprocessableEntity,
		"watch=1&resourceVersionMatch=Exact&resourceVersion=1":      http.StatusUnprocessableEntity,
		"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact": http.StatusUnprocessableEntity,
		"watch=1&sendInitialEvents=maybe&resourceVersionMatch=NotOlderThan&timeoutSeconds=x": http.StatusBadRequest,
		"fieldSelector=metadata.name%3Da,metadata.name%3Db":                                  http.StatusOK,
		"fieldSelector=metadata.namespace%3Dother":                                           http.StatusOK,
		"%zz=1;&=&&;;": http.StatusOK,
	} {
		want(t, query, m.get(t, podsPath+"?"+query).code, expect)
	}
	want(t, "another namespace", names(t, m.get(t, podsPath+"?fieldSelector=metadata.namespace%3Dother")), "")
	want(t, "a negative limit", names(t, m.get(t, podsPath+"?limit=-1")), "a,b")
}

// fuzzed asks within a bubble, so that nothing is waited for, and checks that whatever is asked is answered properly.
func fuzzed(t *testing.T, m *machine, r *http.Request) {
	t.Helper()
	w := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m.handler.ServeHTTP(w, r.WithContext(ctx))
	if w.Code >= http.StatusInternalServerError && (w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), string(metav1.CauseTypeResourceVersionTooLarge))) {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body.String())
	}
}

// FuzzQuery: whatever the parameters and the header Accept are, there is an answer.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"labelSelector=a+in+(x,y),!b&limit=1", "fieldSelector=metadata.name%3Da&watch=1&timeoutSeconds=1", "resourceVersion=1003&resourceVersionMatch=Exact",
		"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", "resourceVersion=9999&limit=3", "includeObject=None&pretty=1",
	} {
		f.Add(query, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		f.Add(query, "application/vnd.kubernetes.protobuf;stream=watch")
	}
	f.Fuzz(func(t *testing.T, query, accept string) {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.set(mirror.Pods, pod("default", "a", labelled("a", "x")), pod("default", "b"))
			for _, path := range []string{"/api/v1/pods", podsPath + "/a", "/api/v1/events"} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.URL.RawQuery = query
				r.Header.Set("Accept", accept)
				fuzzed(t, m, r)
			}
		})
	})
}

// FuzzContinue: whatever the token is, there is an answer.
func FuzzContinue(f *testing.F) {
	f.Add("eyJydiI6MTAwMywic3RhcnQiOnsiTmFtZXNwYWNlIjoiZGVmYXVsdCIsIk5hbWUiOiJiIn19")
	f.Add("e30")
	f.Add("!")
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"), pod("default", "b"))
	f.Fuzz(func(t *testing.T, token string) {
		a := m.get(t, podsPath+"?limit=1&continue="+url.QueryEscape(token))
		if a.code >= http.StatusInternalServerError {
			t.Errorf("%q: %d %s", token, a.code, a.body)
		}
	})
}

// FuzzEphemeral: whatever a patch is, the ephemeral containers of the pod stay, and others are added at most.
func FuzzEphemeral(f *testing.F) {
	f.Add([]byte(`{"spec":{"$setElementOrder/ephemeralContainers":[{"name":"d1"},{"name":"d2"}],"ephemeralContainers":[{"name":"d2","image":"box"}]}}`), true)
	f.Add([]byte(`{"spec":{"ephemeralContainers":[{"name":"d1","image":"box","resources":{},"targetContainerName":"main"},{"name":"d2"}]}}`), false)
	f.Add([]byte(`{"spec":{"ephemeralContainers":null}}`), false)
	f.Add([]byte(`[]`), true)
	f.Fuzz(func(t *testing.T, patch []byte, strategic bool) {
		kind := types.MergePatchType
		if strategic {
			kind = types.StrategicMergePatchType
		}
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web", func(p *v1.Pod) { p.Spec.EphemeralContainers = []v1.EphemeralContainer{debugger("d1")} }))
		a := m.ask(t, http.MethodPatch, debugPath, string(patch), "Content-Type", string(kind))
		if a.code >= http.StatusInternalServerError {
			t.Errorf("%q: %d %s", patch, a.code, a.body)
		}
		p, _, err := m.FindPod(t.Context(), "default", "web")
		must(t, err)
		if all := p.Spec.EphemeralContainers; len(all) == 0 || fmt.Sprint(all[0]) != fmt.Sprint(debugger("d1")) {
			t.Errorf("%q: %+v", patch, all)
		}
	})
}
