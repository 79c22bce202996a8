package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/serve/apiserver"
)

// acceptor accepts pods, or does not.
type acceptor struct {
	err    error
	pods   []*v1.Pod
	dryRun bool // of the last one
}

func (a *acceptor) Accept(_ context.Context, pod *v1.Pod, dryRun bool) error {
	a.pods, a.dryRun = append(a.pods, pod), dryRun
	return a.err
}

func acceptsWith(a *acceptor) func(*apiserver.Options) {
	return func(o *apiserver.Options) { o.Acceptor = a }
}

// TestCreate: what is accepted has what the API server sets, and nothing that only it may set.
func TestCreate(t *testing.T) {
	t.Parallel()
	a := &acceptor{}
	config, _ := newMachine(acceptsWith(a)).serve(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config.ContentType = contentType
		pods := clientOf(t, config).CoreV1().Pods("default")
		given := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", UID: "mine", CreationTimestamp: metav1.Now(), Labels: map[string]string{"a": "b"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "x"}}}, Status: v1.PodStatus{Phase: v1.PodSucceeded},
		}
		pod, err := pods.Create(t.Context(), given, metav1.CreateOptions{})
		must(t, err)
		if !strings.HasPrefix(pod.Name, "web-") || len(pod.Name) != len("web-")+5 || pod.Status.Phase != v1.PodPending {
			t.Errorf("%s: %+v", contentType, pod)
		}
		last := a.pods[len(a.pods)-1]
		if last.Name != pod.Name || last.Namespace != "default" || last.UID != "" || !last.CreationTimestamp.IsZero() || last.Labels["a"] != "b" || a.dryRun {
			t.Errorf("%s: accepted %+v", contentType, last)
		}
		_, err = pods.Create(t.Context(), given, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(t, err)
		if !a.dryRun {
			t.Errorf("%s: no dry run", contentType)
		}
	}
}

// TestCreateRefused: refusals are those of an API server.
func TestCreateRefused(t *testing.T) {
	t.Parallel()
	problem := func(field string) metav1.StatusCause {
		return metav1.StatusCause{Field: field, Message: "Invalid value"}
	}
	for name, tt := range map[string]struct {
		err  error
		is   func(error) bool
		want string
	}{
		"invalid":         {&apiserver.RefusedError{Problems: []metav1.StatusCause{problem("spec.x")}}, apierrors.IsInvalid, `Pod "new" is invalid: spec.x: Invalid value`},
		"several":         {&apiserver.RefusedError{Problems: []metav1.StatusCause{problem("a"), problem("b")}}, apierrors.IsInvalid, `Pod "new" is invalid: [a: Invalid value, b: Invalid value]`},
		"not admitted":    {&apiserver.RefusedError{Reason: "OutOfcpu", Message: "no room"}, apierrors.IsForbidden, `pods "new" is forbidden: OutOfcpu: no room`},
		"other manifests": {errors.New("x.yaml: broken"), apierrors.IsInternalError, "x.yaml: broken"},
	} {
		m := newMachine(acceptsWith(&acceptor{err: tt.err}))
		_, err := m.client(t).CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
		if !tt.is(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// TestNames: what is no name is refused before anything is done, also if it looks like a path.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"../../x", "default"}, {"x/y", "default"}, {"x", "%2e%2e"}, {"x", "a%2fb"}, {"x", "Y"}, {"", "default"}, {strings.Repeat("x", 254), "default"}} {
		a := &acceptor{}
		config, _ := newMachine(acceptsWith(a)).serve(t)
		body := strings.NewReader(`{"metadata": {"name": "` + names[0] + `"}}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces/"+names[1]+"/pods", body)
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || len(a.pods) > 0 {
			t.Errorf("%q: %d, %d pods", names, resp.StatusCode, len(a.pods))
		}
	}
}

// TestFieldValidation: of fields that do not exist, the server is as strict as is asked for.
func TestFieldValidation(t *testing.T) {
	t.Parallel()
	const body = `{"metadata": {"name": "new"}, "spec": {"nothing": 1}}`
	for strictness, want := range map[string]struct {
		code    int
		warning string
	}{
		"":        {http.StatusCreated, `299 - "unknown field \"spec.nothing\""`},
		"Warn":    {http.StatusCreated, `299 - "unknown field \"spec.nothing\""`},
		"Ignore":  {http.StatusCreated, ""},
		"Strict":  {http.StatusBadRequest, ""},
		"Another": {http.StatusBadRequest, ""},
	} {
		config, _ := newMachine(acceptsWith(&acceptor{})).serve(t)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces/default/pods?fieldValidation="+strictness, strings.NewReader(body))
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, resp.Body.Close())
		if got := resp.Header.Get("Warning"); resp.StatusCode != want.code || got != want.warning {
			t.Errorf("%q: %d, %s, want %+v", strictness, resp.StatusCode, got, want)
		}
	}
}
