package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// pipes has connections in memory, which time in a bubble of synctest does not pass for.
type pipes struct {
	dialed  chan net.Conn
	closed  chan struct{}
	handler atomic.Pointer[http.Handler]
	ends    chan struct{} // gets a value for each connection that the server has closed
	// streamed is how many requests there were for a list as a stream.
	streamed atomic.Int64

	mu   sync.Mutex
	open []net.Conn
}

// servePipes has the handler answer over connections in memory, until the test ends. change changes how.
func servePipes(t testing.TB, h http.Handler, change ...func(*http.Server, *http.Transport)) (*pipes, *rest.Config) {
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{}), ends: make(chan struct{}, 1000)}
	p.handler.Store(&h)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				p.streamed.Add(1)
			}
			(*p.handler.Load()).ServeHTTP(w, r)
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				p.ends <- struct{}{}
			}
		},
	}
	transport := &http.Transport{DialContext: p.dial}
	for _, c := range change {
		c(server, transport)
	}
	go func() { _ = server.Serve(p) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return p, &rest.Config{Host: "http://node", Transport: transport, QPS: -1}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.dialed <- server:
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, client)
	return client, nil
}

// drop cuts all connections.
func (p *pipes) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// begin opens a connection, sends a request and reads the header of its answer.
func (p *pipes) begin(t testing.TB, path string) {
	t.Helper()
	conn, err := p.dial(t.Context(), "", "")
	must(t, err)
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\n\r\n", path)
	must(t, err)
	head, next := []byte(nil), make([]byte, 1) // so that the body is left where it is
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		_, err := conn.Read(next)
		must(t, err)
		head = append(head, next...)
	}
	want(t, "answer", string(head[:15]), "HTTP/1.1 200 OK")
}

// TestStalledClient: a client that never reads is disconnected after a while, and one that has nothing to read is not.
// Whatever is done for it ends: the bubble waits for all its goroutines.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p, _ := servePipes(t, m.handler)
		p.begin(t, podsPath+"?watch=1")
		time.Sleep(10 * time.Minute)
		want(t, "ends of a client without events", len(p.ends), 0)
		m.set(mirror.Pods, pod("default", "a"))
		begun := time.Now()
		<-p.ends
		want(t, "time", time.Since(begun), 30*time.Second)
	})
}

// TestClientsGone: what is done for clients ends with their connections.
func TestClientsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p, _ := servePipes(t, m.handler)
		for i := range 50 {
			p.begin(t, []string{podsPath + "?watch=1", "/api/v1/nodes?watch=1&resourceVersion=1000", "/api/v1/services?watch=1&allowWatchBookmarks=1&resourceVersion=1000"}[i%3])
		}
		want(t, "ends", len(p.ends), 0)
		begun := time.Now()
		p.drop()
		for range 50 {
			<-p.ends
		}
		want(t, "time", time.Since(begun), 0)
	})
}

// TestAnHourOfWatchers: clients that come and go for an hour, at any moment and in any way, leave nothing behind: no
// connection, no goroutine, for which the bubble waits, and no memory.
func TestAnHourOfWatchers(t *testing.T) {
	seconds := 3600
	if testing.Short() { // for the race detector
		seconds = 900
	}
	synctest.Test(t, func(t *testing.T) {
		m, random := newMachine(), rand.New(rand.NewPCG(1, 1))
		p, config := servePipes(t, m.handler)
		c := clientOf(t, config)
		ended, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-p.ends:
				case <-done:
					return
				}
			}
		}()
		var seen atomic.Int64
		watch := func(ctx context.Context, timeout int64, events int) {
			options := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &timeout}
			w, err := c.CoreV1().Pods("").Watch(ctx, options)
			if err != nil {
				return // its connection was cut
			}
			defer w.Stop()
			for range events {
				if _, more := <-w.ResultChan(); !more {
					return
				}
				seen.Add(1)
			}
		}
		var clients sync.WaitGroup
		var before uint64
		for second := range seconds {
			for range random.IntN(4) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(60_000))*time.Millisecond)
				timeout, events := int64(1+random.IntN(100)), random.IntN(50)
				clients.Go(func() { defer cancel(); watch(ctx, timeout, events) })
			}
			if random.IntN(4) == 0 {
				m.set(mirror.Pods, pod("default", fmt.Sprint("p", random.IntN(20)), labelled("second", fmt.Sprint(second))))
			}
			if random.IntN(100) == 0 {
				p.drop()
			}
			time.Sleep(time.Second)
			if second == 600 {
				before = heap()
			}
		}
		clients.Wait()
		close(done)
		<-ended
		if seen.Load() < int64(seconds) {
			t.Errorf("%d events", seen.Load())
		}
		if now := heap(); now > before+before/2 {
			t.Errorf("%d bytes after %d seconds, %d after ten minutes", now, seconds, before)
		}
	})
}

// heap returns how many bytes are in use.
func heap() uint64 {
	var s goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&s)
	return s.HeapAlloc
}

// overHTTP2 has both sides speak HTTP/2, as they do with TLS.
func overHTTP2(s *http.Server, c *http.Transport) {
	s.Protocols, c.Protocols = new(http.Protocols), new(http.Protocols)
	s.Protocols.SetUnencryptedHTTP2(true)
	c.Protocols.SetUnencryptedHTTP2(true)
}

// TestQuietWatch: a watch goes on however long nothing happens after an event, also over HTTP/2, which ends a stream when
// a deadline for writes passes, whether there is something to write or not.
func TestQuietWatch(t *testing.T) {
	t.Parallel()
	for protocol, change := range map[string]func(*http.Server, *http.Transport){"HTTP/1.1": func(*http.Server, *http.Transport) {}, "HTTP/2.0": overHTTP2} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			_, config := servePipes(t, m.handler, change)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+podsPath+"?watch=1", nil)
			must(t, err)
			resp, err := config.Transport.RoundTrip(r)
			must(t, err)
			defer func() { must(t, resp.Body.Close()) }()
			want(t, "protocol", resp.Proto, protocol)
			d := json.NewDecoder(resp.Body)
			for i := range 3 {
				m.set(mirror.Pods, pod("default", fmt.Sprint("p", i)))
				var e event
				if err := d.Decode(&e); err != nil {
					t.Fatalf("%s: event %d: %v", protocol, i, err)
				}
				want(t, protocol, e.String(), fmt.Sprintf("ADDED p%d %d", i, begin+3+i))
				time.Sleep(10 * time.Minute)
			}
		})
	}
}
