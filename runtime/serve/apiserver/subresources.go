package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/kubelet"
)

// answerSub answers what is asked of a part of an object.
func (s *server) answerSub(w http.ResponseWriter, r *http.Request, q request) {
	i := slices.IndexFunc(q.resource.subresources, func(sub subresource) bool { return sub.Name == q.subresource })
	if i < 0 || q.rest != "" && q.subresource != subresourceProxy {
		s.fail(w, r, notFound())
		return
	}
	sub, verb := q.resource.subresources[i], verbs[r.Method]
	serve, ok := sub.serve[verb]
	if !ok {
		of := q.resource.groupResource()
		of.Resource += "/" + sub.Name
		s.fail(w, r, apierrors.NewMethodNotSupported(of, verb))
		return
	}
	serve(s, w, r, q)
}

func (s *server) log(w http.ResponseWriter, r *http.Request, q request) {
	s.toKubelet(w, r, q, "containerLogs")
}

// exec is also attach.
func (s *server) exec(w http.ResponseWriter, r *http.Request, q request) {
	s.toKubelet(w, r, q, q.subresource)
}

func (s *server) portForward(w http.ResponseWriter, r *http.Request, q request) {
	s.toKubelet(w, r, q, "portForward")
}

// proxy answers with what the node's kubelet answers.
func (s *server) proxy(w http.ResponseWriter, r *http.Request, q request) {
	if _, err := s.find(r.Context(), request{resource: q.resource, name: q.name}); err != nil {
		s.fail(w, r, err)
		return
	}
	path := "/" + q.rest
	if strings.HasSuffix(r.URL.Path, "/") && q.rest != "" {
		path += "/" // parts have none, and to the kubelet it makes a difference
	}
	s.Kubelet.ServeHTTP(w, forwarded(r, path, r.URL.Query()))
}

// streamParameters are the kubelet's names of parameters, by those of the API.
var streamParameters = map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}

// toKubelet has the kubelet answer, at its path for what is asked for, as an API server does (pkg/registry/core/pod
// LogLocation, streamLocation).
func (s *server) toKubelet(w http.ResponseWriter, r *http.Request, q request, path string) {
	pod, err := s.findPod(r.Context(), q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	parts := []string{"", path, pod.Namespace, pod.Name}
	values := r.URL.Query()
	if path != "portForward" {
		container, err := chosenContainer(pod, values.Get("container"))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		parts = append(parts, container)
	} else if ports := values["ports"]; ports != nil {
		values["port"] = ports
	}
	for name, theirs := range streamParameters {
		set := kubelet.IsSet(values, name)
		values.Del(name)
		if set {
			values.Set(theirs, "1")
		}
	}
	answer := &answer{ResponseWriter: w}
	s.Kubelet.ServeHTTP(answer, forwarded(r, strings.Join(parts, "/"), values))
	if answer.code != 0 {
		s.fail(w, r, kubeletError(answer.code, strings.TrimSpace(answer.text.String())))
	}
}

// forwarded returns the request for another path.
func forwarded(r *http.Request, path string, values url.Values) *http.Request {
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = path, "", values.Encode()
	return r
}

// chosenContainer returns the container with the name, or the only one for "" (validateContainer of
// pkg/registry/core/pod).
func chosenContainer(pod *v1.Pod, name string) (string, error) {
	switch {
	case name == "" && len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case name == "":
		var names []string
		for _, c := range podspec.AllContainers(pod) {
			names = append(names, c.Name)
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
	case podspec.Container(pod, name) == nil:
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}

// answer is an answer of the kubelet, which has errors as plain text: they are kept for a Status.
type answer struct {
	http.ResponseWriter
	code int // of an error, 0 for none
	text bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		a.code = code
		return
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	if a.code != 0 {
		return a.text.Write(data)
	}
	return a.ResponseWriter.Write(data)
}

// Unwrap gives http.ResponseController what the response can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush implements http.Flusher, for what does not know http.ResponseController.
func (a *answer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// kubeletError is the error for what a kubelet has answered (GenericHttpResponseChecker of
// k8s.io/apiserver/pkg/registry/generic/rest), with the kubelet's message.
func kubeletError(code int, message string) error {
	if code == http.StatusInternalServerError {
		return apierrors.NewInternalError(errors.New(message))
	}
	err := apierrors.NewGenericServerResponse(code, "", podsResource, "", message, 0, false)
	err.ErrStatus.Message = message
	return err
}
