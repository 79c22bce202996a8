package probe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Any status of a hook is a success, as in the kubelet.
func TestHook(t *testing.T) {
	t.Parallel()
	http2 := v1.HTTPProtocolHTTP2
	for _, tt := range []struct {
		name     string
		scheme   v1.URIScheme
		protocol *v1.HTTPProtocol
		secure   bool
		proto    string
		auth     string
	}{
		{"default", "", nil, false, "HTTP/1.1", "secret"},
		{"http", v1.URISchemeHTTP, nil, false, "HTTP/1.1", "secret"},
		{"https", v1.URISchemeHTTPS, nil, true, "HTTP/2.0", "secret"},
		{"https of a server of http", v1.URISchemeHTTPS, nil, false, "HTTP/1.1", ""},
		{"http2", v1.URISchemeHTTP, &http2, false, "HTTP/2.0", "secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				w.WriteHeader(http.StatusTeapot)
			}))
			start(t, server, tt.secure)
			host, port := portOf(t, server.Listener.Addr().String())
			target := Target{IP: host, Container: &v1.Container{Ports: []v1.ContainerPort{{Name: "bye", ContainerPort: int32(port)}}}}
			err := target.Hook(t.Context(), &v1.HTTPGetAction{
				Path: "/bye?now", Port: intstr.FromString("bye"), Scheme: tt.scheme, Protocol: tt.protocol,
				HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "me"}, {Name: "X-Why", Value: "stop"}, {Name: "Authorization", Value: "secret"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.RequestURI != "/bye?now" || got.Host != "me" || got.Header.Get("X-Why") != "stop" ||
				got.UserAgent() != "kube-lifecycle/1.37" || got.Proto != tt.proto || got.Header.Get("Authorization") != tt.auth {
				t.Errorf("%s %s of %s with %v", got.Proto, got.RequestURI, got.Host, got.Header)
			}
		})
	}
}

// start starts a server that speaks all versions of HTTP, over TLS if it is to be secure.
func start(t *testing.T, server *httptest.Server, secure bool) {
	t.Helper()
	t.Cleanup(server.Close)
	if secure {
		server.EnableHTTP2 = true
		server.StartTLS()
		return
	}
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
}

func TestHookErrors(t *testing.T) {
	t.Parallel()
	host, closed := closedPort(t)
	for _, tt := range []struct {
		name  string
		in    v1.HTTPGetAction
		words string
	}{
		{"port without a name", v1.HTTPGetAction{Port: intstr.FromString("none")}, `container "c" has no port "none"`},
		{"nobody there", v1.HTTPGetAction{Port: intstr.FromInt32(int32(closed))}, "connection refused"},
	} {
		err := Target{IP: host, Container: &v1.Container{Name: "c"}}.Hook(t.Context(), &tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
	}
}
