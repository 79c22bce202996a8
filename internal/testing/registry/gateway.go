package registry

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// Gateway is an HTTP proxy, as in HTTPS_PROXY, behind which registries have names of their own.
type Gateway struct {
	URL string

	mu         sync.Mutex
	registries map[string]*Registry
	requests   map[string]int
}

// NewGateway starts a gateway to registries by name. The address of a registry that is nil cannot
// be reached.
func NewGateway(t testing.TB, registries map[string]*Registry) *Gateway {
	t.Helper()
	g := &Gateway{registries: registries, requests: map[string]int{}}
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.URL = server.URL
	return g
}

// Requests returns how many connections, or requests without TLS, a name has got.
func (g *Gateway) Requests(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests[name]
}

// ServeHTTP forwards a request without TLS, or a connection.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	to := g.registries[r.URL.Hostname()]
	g.requests[r.URL.Hostname()]++
	g.mu.Unlock()
	switch {
	case to == nil:
		w.WriteHeader(http.StatusBadGateway)
	case r.Method == http.MethodConnect:
		tunnel(w, r, to.Host)
	default:
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: to.Scheme, Host: to.Host}).ServeHTTP(w, r)
	}
}

func tunnel(w http.ResponseWriter, r *http.Request, host string) {
	upstream, err := new(net.Dialer).DialContext(r.Context(), "tcp", host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = upstream.Close() }()
	w.WriteHeader(http.StatusOK)
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.Close()
	}()
	_, _ = io.Copy(client, upstream)
	_ = client.Close()
}
