// Package kubelet serves the API of a kubelet: its paths, parameters and answers (pkg/kubelet/server/server.go), so that
// what reads a kubelet reads this. Who may ask is for the caller to check.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
)

// Pods are those of the node.
type Pods interface {
	// GetPods returns them with their status. They must not be changed.
	GetPods(ctx context.Context) ([]*v1.Pod, error)
	// FindPod returns one, if there is one.
	FindPod(ctx context.Context, namespace, name string) (pod *v1.Pod, found bool, err error)
}

// Runtime runs the pods, as *runtime.Pods does, whose methods these are.
type Runtime interface {
	Exec(ctx context.Context, pod *v1.Pod, container string, c runtime.Command, s engine.Streams) (int32, error)
	Attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error)
	Dial(ctx context.Context, pod *v1.Pod, port int32) (net.Conn, error)
	Log(ctx context.Context, pod *v1.Pod, container string, previous bool) (string, error)
	FollowLog(ctx context.Context, pod *v1.Pod, f runtime.FollowedLog, to logs.Sinks, o logs.Options) error
	Used(ctx context.Context, pod *v1.Pod) (podusage.Sample, map[string]podusage.Sample, error)
	ProbeResults(pod *v1.Pod) map[runtime.Probed]int
}

// Options are the parts of a server.
type Options struct {
	Node    string    // its name
	Started time.Time // when the node began to run pods
	MaxPods int64     // how many it runs at most
	Pods    Pods
	// Assigned returns the pods that the node is to run, nil for those that it has.
	Assigned func(ctx context.Context) ([]*v1.Pod, error)
	Runtime  Runtime
	Log      *slog.Logger // nil for none
}

// server answers requests.
type server struct{ Options }

// Handler returns what answers the requests. It is safe for concurrent use.
func Handler(o Options) http.Handler {
	if o.Assigned == nil {
		o.Assigned = o.Pods.GetPods
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, r *http.Request) { s.list(w, r, s.Assigned) })
	mux.HandleFunc("GET /runningpods/", func(w http.ResponseWriter, r *http.Request) { s.list(w, r, s.running) })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("GET /configz", s.configuration)
	mux.HandleFunc("GET /metrics/resource", s.resourceMetrics)
	mux.Handle("GET /metrics", metricsHandler(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), podCollector{s}))
	mux.Handle("GET /metrics/probes", metricsHandler(probeCollector{s}))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for path, h := range map[string]http.HandlerFunc{
			"/exec/{namespace}/{pod}/{container}":         s.exec,
			"/exec/{namespace}/{pod}/{uid}/{container}":   s.exec,
			"/attach/{namespace}/{pod}/{container}":       s.attach,
			"/attach/{namespace}/{pod}/{uid}/{container}": s.attach,
			"/portForward/{namespace}/{pod}":              s.portForward,
			"/portForward/{namespace}/{pod}/{uid}":        s.portForward,
		} {
			mux.HandleFunc(method+" "+path, h)
		}
	}
	return mux
}

// running returns the pods with a container that runs.
func (s *server) running(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := s.Pods.GetPods(ctx)
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !podspec.AnyRuns(pod.Status) }), err
}

// list answers with pods.
func (s *server) list(w http.ResponseWriter, r *http.Request, pods func(context.Context) ([]*v1.Pod, error)) {
	all, err := pods(r.Context())
	if err != nil {
		s.fail(w, r, http.StatusInternalServerError, err)
		return
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]v1.Pod, 0, len(all))}
	for _, pod := range all {
		list.Items = append(list.Items, *pod)
	}
	s.writeJSON(w, r, list)
}

// configuration answers with what there is of a kubelet's configuration.
func (s *server) configuration(w http.ResponseWriter, r *http.Request) {
	// The type with all fields would link what configures the logs of Kubernetes' programs.
	s.writeJSON(w, r, map[string]any{"kubeletconfig": map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"maxPods": s.MaxPods, "streamingConnectionIdleTimeout": metav1.Duration{Duration: idleTimeout},
	}})
}

func (s *server) writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		s.fail(w, r, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client may have gone
}

// pod returns the pod that the request is about. If there is none, it has answered that.
func (s *server) pod(w http.ResponseWriter, r *http.Request) (*v1.Pod, bool) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid"))
	pod, found, err := s.Pods.FindPod(r.Context(), namespace, name)
	switch {
	case err != nil:
		s.fail(w, r, http.StatusInternalServerError, err)
		return nil, false
	case !found, uid != "" && uid != pod.UID:
		s.fail(w, r, http.StatusNotFound, fmt.Errorf("pod %q does not exist", namespace+"/"+name))
		return nil, false
	}
	return pod, true
}

// container returns the container that the request is about, as pod does.
func (s *server) container(w http.ResponseWriter, r *http.Request) (*v1.Pod, string, bool) {
	pod, ok := s.pod(w, r)
	if !ok {
		return nil, "", false
	}
	name := r.PathValue("container")
	if podspec.Container(pod, name) == nil {
		s.fail(w, r, http.StatusNotFound, fmt.Errorf("container %q not found in pod %q", name, podspec.FullName(pod)))
		return nil, "", false
	}
	return pod, name, true
}

// fail answers with an error.
func (s *server) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	s.Log.DebugContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "code", code, "error", err)
	http.Error(w, err.Error(), code)
}
