package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portOf returns the host and port of an address.
func portOf(t *testing.T, addr string) (string, int) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return host, n
}

func wantOutcome(t *testing.T, got Outcome, result Result, words string) {
	t.Helper()
	if got.Result != result || !strings.Contains(got.Output, words) {
		t.Errorf("got %s %q, want %s with %q", got.Result, got.Output, result, words)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		code   int32
		output string
		err    error
		want   Outcome
	}{
		{"success", 0, "fine", nil, Outcome{Success, "fine"}},
		{"failure", 3, "not fine", nil, Outcome{Failure, "not fine"}},
		{"cannot", 0, "", errors.New("no such file"), Outcome{Unknown, "no such file"}},
		{"much output", 0, strings.Repeat("x", 20<<10), nil, Outcome{Success, strings.Repeat("x", 10<<10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			target := Target{Container: &v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "b"}}}, Exec: func(_ context.Context, command []string) (int32, []byte, error) {
				tries++
				if diff := cmp.Diff([]string{"cat", "b"}, command); diff != "" {
					t.Error(diff)
				}
				return tt.code, []byte(tt.output), tt.err
			}}
			p := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "$(A)"}}}}
			if diff := cmp.Diff(tt.want, Check(t.Context(), target, p)); diff != "" {
				t.Error(diff)
			}
			if wantTries := map[bool]int{true: 3, false: 1}[tt.err != nil]; tries != wantTries {
				t.Errorf("%d tries, want %d", tries, wantTries)
			}
		})
	}
}

func TestExecTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := Target{Container: &v1.Container{}, Exec: func(ctx context.Context, _ []string) (int32, []byte, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}}
		p := &v1.Probe{TimeoutSeconds: 2, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}
		start := time.Now()
		got := Check(t.Context(), target, p)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		wantOutcome(t, got, Failure, `command ["x"] timed out after 2s`)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantOutcome(t, Check(ctx, target, p), Unknown, "deadline")

		// It has ended in time, but left a child that holds its output.
		target.Exec = func(ctx context.Context, _ []string) (int32, []byte, error) {
			<-ctx.Done()
			return 0, []byte("up"), nil
		}
		wantOutcome(t, Check(t.Context(), target, p), Success, "up")
	})
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect to another host was followed")
	}))
	t.Cleanup(other.Close)
	_, otherPort := portOf(t, other.Listener.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s %q", r.URL.RawQuery, r.Host, r.Header.Get("User-Agent"), r.Header["Accept"])
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/notmodified", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/near", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/nearbad", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) })
	mux.HandleFunc("/far", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, fmt.Sprintf("http://localhost:%d/", otherPort), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/much", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	for _, scheme := range []string{"HTTP", "HTTPS"} {
		server := httptest.NewUnstartedServer(mux)
		start(t, server, scheme == "HTTPS")
		host, port := portOf(t, server.Listener.Addr().String())
		target := Target{IP: host, Container: &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}}
		for _, tt := range []struct {
			path    string
			headers []v1.HTTPHeader
			result  Result
			words   string
		}{
			{"/ok?a=b", nil, Success, fmt.Sprintf(`a=b %s:%d kube-probe/1.37 ["*/*"]`, host, port)},
			{"ok", nil, Success, "kube-probe"},
			{"/ok", []v1.HTTPHeader{{Name: "host", Value: "me"}, {Name: "user-agent", Value: "you"}, {Name: "Accept", Value: ""}}, Success, " me you []"},
			{"/bad", nil, Failure, "HTTP probe failed with statuscode: 503"},
			{"/none", nil, Failure, "HTTP probe failed with statuscode: 404"},
			{"/notmodified", nil, Success, "terminated redirects"},
			{"/near", nil, Success, "kube-probe"},
			{"/nearbad", nil, Failure, "statuscode: 503"},
			{"/far", nil, Success, "Probe terminated redirects"},
			{"/loop", nil, Failure, "stopped after 10 redirects"},
			{"/much", nil, Success, ""},
		} {
			t.Run(scheme+" "+tt.path, func(t *testing.T) {
				t.Parallel()
				got := Check(t.Context(), target, &v1.Probe{TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
					Path: tt.path, Port: intstr.FromString("web"), Scheme: v1.URIScheme(scheme), HTTPHeaders: tt.headers,
				}}})
				wantOutcome(t, got, tt.result, tt.words)
				if len(got.Output) > 11<<10 {
					t.Errorf("%d bytes of output", len(got.Output))
				}
			})
		}
	}
}

// The wire protocol: HTTP/1.1 over HTTP unless HTTP2 is asked for, over HTTPS the newest.
func TestHTTPProtocol(t *testing.T) {
	t.Parallel()
	http1, http2 := v1.HTTPProtocolHTTP1, v1.HTTPProtocolHTTP2
	for _, tt := range []struct {
		name     string
		secure   bool
		protocol *v1.HTTPProtocol
		words    string
	}{
		{"default", false, nil, "HTTP/1.1"},
		{"HTTP1", false, &http1, "HTTP/1.1"},
		{"HTTP2", false, &http2, "HTTP/2.0"},
		{"HTTPS", true, nil, "HTTP/2.0"},
		{"HTTPS, HTTP1", true, &http1, "HTTP/2.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
			}))
			start(t, server, tt.secure)
			host, port := portOf(t, server.Listener.Addr().String())
			action := &v1.HTTPGetAction{Port: intstr.FromInt32(int32(port)), Protocol: tt.protocol}
			if tt.secure {
				action.Scheme = v1.URISchemeHTTPS
			}
			got := Check(t.Context(), Target{IP: host, Container: &v1.Container{}}, &v1.Probe{
				TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{HTTPGet: action},
			})
			wantOutcome(t, got, Success, tt.words)
		})
	}
	// A server of HTTP/1.1 alone does not answer.
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	host, port := portOf(t, server.Listener.Addr().String())
	got := Check(t.Context(), Target{IP: host, Container: &v1.Container{}}, &v1.Probe{TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(int32(port)), Protocol: &http2},
	}})
	wantOutcome(t, got, Failure, "http2")
}

func TestHTTPTimeout(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
		}
		<-stop
	}))
	t.Cleanup(func() { close(stop); server.Close() })
	host, port := portOf(t, server.Listener.Addr().String())
	for path, want := range map[string]Result{"/": Failure, "/body": Unknown} {
		got := Check(t.Context(), Target{IP: host, Container: &v1.Container{}}, &v1.Probe{ProbeHandler: v1.ProbeHandler{
			HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))},
		}})
		wantOutcome(t, got, want, "deadline exceeded")
	}
}

// closedPort is a port on which nothing can listen while the test runs.
func closedPort(t *testing.T) (string, int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	addr, ok := name.(*unix.SockaddrInet4)
	if err != nil || !ok {
		t.Fatal(name, err)
	}
	return "127.0.0.1", addr.Port
}

func TestTCP(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	host, port := portOf(t, l.Addr().String())
	closedHost, closed := closedPort(t)
	target := Target{IP: host, Container: &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "x", ContainerPort: int32(port)}}}}
	for _, tt := range []struct {
		name   string
		in     v1.TCPSocketAction
		result Result
		words  string
	}{
		{"open", v1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}, Success, ""},
		{"by name", v1.TCPSocketAction{Port: intstr.FromString("x")}, Success, ""},
		{"by number in a string", v1.TCPSocketAction{Port: intstr.FromString(strconv.Itoa(port))}, Success, ""},
		{"host", v1.TCPSocketAction{Host: "localhost", Port: intstr.FromInt32(int32(port))}, Success, ""},
		{"closed", v1.TCPSocketAction{Host: closedHost, Port: intstr.FromInt32(int32(closed))}, Failure, "connection refused"},
		{"no such name", v1.TCPSocketAction{Port: intstr.FromString("y")}, Unknown, `container "c" has no port "y"`},
		{"no host of that name", v1.TCPSocketAction{Host: "no.such.host.invalid", Port: intstr.FromInt32(1)}, Failure, "no.such.host.invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Check(t.Context(), target, &v1.Probe{TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{TCPSocket: &tt.in}})
			wantOutcome(t, got, tt.result, tt.words)
		})
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	serve := func(register bool, options ...grpc.ServerOption) (string, int) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(options...)
		if register {
			h := grpchealth.NewServer()
			h.SetServingStatus("sick", health.HealthCheckResponse_NOT_SERVING)
			health.RegisterHealthServer(server, h)
		}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		return portOf(t, l.Addr().String())
	}
	host, port := serve(true)
	_, mute := serve(false)
	_, secure := serve(true, grpc.Creds(credentials.NewServerTLSFromCert(certificate(t))))
	_, closed := closedPort(t)
	sick, unknown := "sick", "unknown"
	plaintext, tls := v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS
	for _, tt := range []struct {
		name   string
		in     v1.GRPCAction
		result Result
		words  string
	}{
		{"serving", v1.GRPCAction{Port: int32(port)}, Success, "service healthy"},
		{"not serving", v1.GRPCAction{Port: int32(port), Service: &sick}, Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", v1.GRPCAction{Port: int32(port), Service: &unknown}, Failure, "health rpc probe failed"},
		{"no health service", v1.GRPCAction{Port: int32(mute)}, Failure, "does not implement the grpc health protocol"},
		{"closed", v1.GRPCAction{Port: int32(closed)}, Failure, "failed to connect service"},
		{"explicitly plain", v1.GRPCAction{Port: int32(port), Mode: &plaintext}, Success, "service healthy"},
		{"TLS", v1.GRPCAction{Port: int32(secure), Mode: &tls}, Success, "service healthy"},
		{"plain, TLS wanted", v1.GRPCAction{Port: int32(port), Mode: &tls}, Failure, "failed to connect service"},
		{"TLS, plain wanted", v1.GRPCAction{Port: int32(secure)}, Failure, "failed to connect service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Check(t.Context(), Target{IP: host, Container: &v1.Container{}}, &v1.Probe{
				TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{GRPC: &tt.in},
			})
			wantOutcome(t, got, tt.result, tt.words)
		})
	}
}

// certificate is self-signed.
func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	server.Close()
	return &server.TLS.Certificates[0]
}

func TestNoHandler(t *testing.T) {
	t.Parallel()
	wantOutcome(t, Check(t.Context(), Target{Container: &v1.Container{}}, &v1.Probe{}), Unknown, "no handler")
}

func TestExpand(t *testing.T) {
	t.Parallel()
	env := []v1.EnvVar{{Name: "A", Value: "0"}, {Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}, {Name: "", Value: "empty"}}
	for in, want := range map[string]string{
		"": "", "x": "x", "$(A)": "1", "x$(A)y$(B)": "x1y$(A)", "$$(A)": "$(A)", "$$$(A)": "$1", "$(C)": "$(C)",
		"$(A": "$(A", "$A": "$A", "$": "$", "$$": "$", "a$": "a$", "$()": "empty", "$($(A))": "$($(A))",
	} {
		if got := expandStatic([]string{in}, env)[0]; got != want {
			t.Errorf("expandStatic(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("a$(A)$$(B)$(")
	f.Fuzz(func(t *testing.T, in string) {
		if got := expandStatic([]string{in}, nil)[0]; len(got) > len(in) {
			t.Errorf("expandStatic(%q) = %q: longer without any value", in, got)
		}
	})
}
