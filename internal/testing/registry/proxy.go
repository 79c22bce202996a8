package registry

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Fault changes the answer to a request. next gives the true answer.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Rule makes a fault of the first requests that match.
type Rule struct {
	Method string // empty for all
	Path   string // a part of it
	Times  int    // how many requests
	Fault  Fault
}

// Proxy is before a registry, counts requests and makes faults.
type Proxy struct {
	Host string
	next http.Handler

	mu       sync.Mutex
	rules    []Rule
	requests []*http.Request
}

// NewProxy starts a proxy of plain HTTP before a registry. It is an HTTP proxy, too, for clients
// that believe that the registry has another name.
func NewProxy(t testing.TB, r *Registry, rules ...Rule) *Proxy {
	t.Helper()
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: r.Scheme, Host: r.Host})
	forward.Transport = r.client.Transport
	p := &Proxy{next: forward, rules: rules}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.Host = server.Listener.Addr().String()
	return p
}

// ServeHTTP answers a request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.fault(r)
	if fault == nil {
		p.next.ServeHTTP(w, r)
		return
	}
	fault(w, r, p.next)
}

func (p *Proxy) fault(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	for i := range p.rules {
		rule := &p.rules[i]
		if rule.Times > 0 && (rule.Method == "" || rule.Method == r.Method) && strings.Contains(r.URL.Path, rule.Path) {
			rule.Times--
			return rule.Fault
		}
	}
	return nil
}

// Requests returns the requests so far with a part of the path.
func (p *Proxy) Requests(method, path string) []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.requests), func(r *http.Request) bool {
		return r.Method != method || !strings.Contains(r.URL.Path, path)
	})
}

// Status answers with a code and a header, as in "Retry-After: 2".
func Status(code int, headers ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

// Drop resets the connection without an answer.
func Drop(w http.ResponseWriter, _ *http.Request, _ http.Handler) { reset(w) }

func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// partial sends so many bytes of the true answer, and ends it in some way.
func partial(after int, end func(http.ResponseWriter, *http.Request)) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer := record(r, next)
		copyHeader(w, answer)
		_, _ = w.Write(answer.Body.Bytes()[:min(after, answer.Body.Len())])
		_ = http.NewResponseController(w).Flush()
		end(w, r)
	}
}

// Reset resets the connection after so many bytes of the true answer.
func Reset(after int) Fault {
	return partial(after, func(w http.ResponseWriter, _ *http.Request) { reset(w) })
}

// Stall sends so many bytes of the true answer, and nothing more.
func Stall(after int) Fault {
	return partial(after, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// Truncate ends the true answer early, as if it were complete.
func Truncate(after int) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer := record(r, next)
		answer.Header().Del("Content-Length")
		copyHeader(w, answer)
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(answer.Body.Bytes()[:min(after, answer.Body.Len())])
	}
}

// Corrupt changes a byte of the true answer.
func Corrupt(w http.ResponseWriter, r *http.Request, next http.Handler) {
	answer := record(r, next)
	copyHeader(w, answer)
	body := answer.Body.Bytes()
	body[len(body)/2] ^= 0xff
	_, _ = w.Write(body)
}

// NoRange answers as a registry that does not know how to send a part of a blob.
func NoRange(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r = r.Clone(r.Context())
	r.Header.Del("Range")
	next.ServeHTTP(w, r)
}

// RefuseRange answers a request for a part of a blob with a code.
func RefuseRange(code int) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Range") != "" {
			w.WriteHeader(code)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// record returns the true answer.
func record(r *http.Request, next http.Handler) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	if answer.Header().Get("Content-Length") == "" {
		answer.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	}
	return answer
}

func copyHeader(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
}
