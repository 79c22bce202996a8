// Package apiserver serves as much of the Kubernetes API as clients need to work with the pods of one machine: kubectl,
// client libraries, dashboards. Objects are those of a mirror; whatever happens in containers is left to package kubelet,
// as an API server leaves it to a kubelet. Who may ask is for the caller to check.
package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"github.com/runonce/runonce/runtime/serve/apiserver/openapi"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// Mirror has the objects, as *mirror.Mirror does.
type Mirror interface {
	Store() *objects.Store
	// Sync returns when the store has all that had happened before the call.
	Sync(ctx context.Context) error
}

// Pods changes pods.
type Pods interface {
	// Remove stops a pod and removes it, with the grace period that it has, or a shorter one.
	Remove(ctx context.Context, pod *v1.Pod, grace time.Duration) error
	// Debug starts an ephemeral container in a pod that runs.
	Debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error
}

// Options are the parts of a server. All must be set but those that say otherwise.
type Options struct {
	Mirror Mirror
	Pods   Pods
	// Acceptor runs the pods that clients create; nil if they cannot.
	Acceptor Acceptor
	// Kubelet answers what is about containers: logs, commands, streams, ports, metrics.
	Kubelet http.Handler
	// Usage says what the pods use.
	Usage Usage
	// Version is that of the API, such as v1.37.0, with more after a "+" that says whose it is.
	Version string
	// User is the name of who asks, as far as that is known.
	User string
	Log  *slog.Logger
}

// server answers requests.
type server struct {
	Options
	resources []*resource
	codecs    codecs

	// What was measured for nodes does not have the containers.
	ofNodes, ofPods sampler

	mu       sync.Mutex             // guards the next one
	removals map[types.UID]*removal // that have begun last, and go on
}

// Handler returns what answers requests below the paths of the API. Others are the kubelet's. It is safe for concurrent use.
func Handler(o Options) http.Handler {
	s := &server{Options: o, resources: allResources(o.Acceptor != nil), codecs: newCodecs(), removals: map[types.UID]*removal{}}
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	mux.HandleFunc("GET /version", s.versions)
	mux.Handle("GET /openapi/", openapi.Handler())
	for path, serve := range map[string]http.HandlerFunc{"/api": s.api, "/apis": s.apis} {
		mux.HandleFunc(path, s.readOnly(serve))
		mux.HandleFunc(path+"/{$}", s.readOnly(serve))
	}
	mux.HandleFunc("/api/", s.serve)
	mux.HandleFunc("/apis/", s.serve)
	mux.Handle("/", o.Kubelet)
	return mux
}

func (s *server) versions(w http.ResponseWriter, r *http.Request) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	s.writePlain(w, r, version.Info{
		Major: major, Minor: minor, GitVersion: s.Version, GitTreeState: "clean", Compiler: "gc",
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// request is what a path asks for.
type request struct {
	resource    *resource
	namespace   string // "" for all
	name        string // "" for a collection
	subresource string
	rest        string // of the path, after the subresource
}

func notFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource",
	}}
}

// notAllowed is the error for a method that nothing here has. Those of a resource are refused with its name.
func notAllowed() error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// readOnly has requests answered that read, as those for discovery must.
func (s *server) readOnly(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			s.fail(w, r, notAllowed())
			return
		}
		serve(w, r)
	}
}

// serve answers what is below a group.
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	gv, path := groupVersion(r.URL.Path)
	if len(path) == 0 {
		s.readOnly(func(w http.ResponseWriter, r *http.Request) { s.describe(w, r, gv) })(w, r)
		return
	}
	q, ok := s.parse(gv, path)
	switch {
	case !ok:
		s.fail(w, r, notFound())
	case verbs[r.Method] == "":
		s.fail(w, r, notAllowed())
	default:
		s.answer(w, r, q)
	}
}

// groupVersion splits a path. The version is empty if it has none, and the group if that is the one without a name. All
// is empty for a path that has fewer parts than it seems, because a slash was encoded.
func groupVersion(path string) (gv schema.GroupVersion, rest []string) {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case parts[0] == "api" && len(parts) > 1:
		return schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) == 2:
		return schema.GroupVersion{Group: parts[1]}, nil
	case parts[0] == "apis" && len(parts) > 2 && parts[1] != "":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	return schema.GroupVersion{}, nil
}

// parse reads a path below a group's version (RequestInfoFactory of k8s.io/apiserver/pkg/endpoints/request).
func (s *server) parse(gv schema.GroupVersion, path []string) (q request, ok bool) {
	if path[0] == "namespaces" && len(path) > 2 {
		q.namespace, path = path[1], path[2:]
	}
	i := slices.IndexFunc(s.resources, func(r *resource) bool {
		return r.Group == gv.Group && r.Version == gv.Version && r.Name == path[0] && (r.Namespaced || q.namespace == "")
	})
	if i < 0 || slices.Contains(path, "") {
		return q, false
	}
	q.resource = s.resources[i]
	if len(path) > 1 {
		q.name = path[1]
	}
	if len(path) > 2 {
		q.subresource, q.rest = path[2], strings.Join(path[3:], "/")
	}
	return q, q.name == "" || !q.resource.Namespaced || q.namespace != ""
}

// answer does what is asked for.
func (s *server) answer(w http.ResponseWriter, r *http.Request, q request) {
	verb := verbs[r.Method]
	if of, ok := collectionVerbs[verb]; ok && q.name == "" {
		verb = of
	}
	serve := objectHandlers[verb]
	switch {
	case q.subresource != "":
		s.answerSub(w, r, q)
	case q.resource.review != nil:
		s.review(w, r, q)
	case serve == nil, !slices.Contains(q.resource.Verbs, verb), verb == "create" && q.name != "":
		s.fail(w, r, refused(r.Method, q))
	default:
		serve(s, w, r, q)
	}
}

// objectHandlers answer about objects, by verb.
var objectHandlers = map[string]handler{
	"get": (*server).get, "list": (*server).listOrWatch, "create": (*server).create, "delete": (*server).remove, "deletecollection": (*server).removeAll,
}

// collectionVerbs are the verbs of requests for a collection, by those for an object.
var collectionVerbs = map[string]string{"get": "list", "delete": "deletecollection"}

// verbs are those of requests.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// refused is the error of what this server does not do.
func refused(method string, q request) error {
	err := apierrors.NewMethodNotSupported(q.resource.groupResource(), verbs[method])
	err.ErrStatus.Message = fmt.Sprintf(`this server does not %s %s: what it shows is what "runonce run" has started, or "runonce watch"`, verbs[method], q.resource.Name)
	return err
}
