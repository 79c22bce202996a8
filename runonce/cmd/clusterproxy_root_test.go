package cmd_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// through returns a machine whose requests to the API server a handler gets, with another one that
// forwards them.
func (c onCluster) through(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, forward http.Handler)) machine {
	t.Helper()
	server, err := url.Parse(c.Server)
	if err != nil {
		t.Fatal(err)
	}
	serverCA := filepath.Join(c.Dir, "server", "apiserver.crt")
	ca, err := os.ReadFile(serverCA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	forward := httputil.NewSingleHostReverseProxy(server)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	forward.FlushInterval = -1
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, forward) }))
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	proxyCA := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(proxyCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.with(t, c.Server, proxy.URL, serverCA, proxyCA)
}

// throttle refuses each kind of request for a while from its first one, as an API server does that has
// too many, and counts.
type throttle struct {
	mu      sync.Mutex
	since   map[string]time.Time
	refused map[string]int
}

// refuses reports whether a request is refused.
func (l *throttle) refuses(r *http.Request) bool {
	q := r.URL.Query()
	kind := r.Method + " " + r.URL.Path + " " + q.Get("watch") + q.Get("dryRun")
	// Between two requests of who waits for a second.
	length := 500 * time.Millisecond
	if r.URL.Path == "/version" {
		length = 3500 * time.Millisecond // longer than a server may refuse connections
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since[kind].IsZero() {
		l.since[kind] = time.Now()
	}
	if time.Since(l.since[kind]) > length {
		return false
	}
	l.refused[kind]++
	return true
}

// clusterThrottled: a run goes on when the server answers 429, and asks again only after the time that the
// server says.
func clusterThrottled(t *testing.T, c onCluster) {
	l := &throttle{since: map[string]time.Time{}, refused: map[string]int{}}
	m := c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if l.refuses(r) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		}
		forward.ServeHTTP(w, r)
	})
	dir := podDir(t, fmt.Sprintf(sleeper, "throttled", "exit 3", "")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: throttled}\n")
	r := m.begin("run", "-o", "json", "--until", "completed", "--rm", dir).end(t, 1).Results[0]
	if r.Attempts != 1 || r.Containers[0].ExitCode == nil || *r.Containers[0].ExitCode != 3 || len(r.Events) == 0 || r.RemoveError != "" {
		t.Errorf("%+v", r)
	}
	const objects = "/api/v1/namespaces/default/"
	for kind, most := range map[string]int{
		"GET /version ": 4, "GET /api/v1/nodes ": 1, "GET /api/v1/pods true": 1,
		"PATCH " + objects + "configmaps/throttled All": 1, "PATCH " + objects + "configmaps/throttled ": 1,
		"POST " + objects + "pods All": 1, "POST " + objects + "pods ": 1,
		"GET " + objects + "pods/throttled/log ": 1, "GET " + objects + "events ": 1,
		"DELETE " + objects + "pods/throttled ": 1, "DELETE " + objects + "configmaps/throttled ": 1,
	} {
		if n := l.refused[kind]; n == 0 || n > most {
			t.Errorf("%s: refused %d times, want 1 to %d", kind, n, most)
		}
	}
}

// clusterUnprepared: with --rm, a run that ends before it has created all objects removes those that it has.
func clusterUnprepared(t *testing.T, c onCluster) {
	m := c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if strings.Contains(r.URL.Path, "/configmaps/") && r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		forward.ServeHTTP(w, r)
	})
	dir := podDir(t, fmt.Sprintf(sleeper, "unprepared", "exit 0", "")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: unprepared}\n"+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: unprepared}\n")
	m.fails(t, 1, "run", "--rm", "--timeout", "4s", dir)
	if left := c.names(t, "secrets", "runonce/managed"); len(left) > 0 {
		t.Errorf("left: %s", left)
	}
}
