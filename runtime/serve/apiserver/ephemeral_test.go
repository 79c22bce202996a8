package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

const debugPath = podsPath + "/web/ephemeralcontainers"

// debugger returns an ephemeral container.
func debugger(name string) v1.EphemeralContainer {
	return v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "box"}, TargetContainerName: "main"}
}

// debuggers returns the names of the ephemeral containers of a pod.
func debuggers(pod *v1.Pod) string {
	all := make([]string, 0, len(pod.Spec.EphemeralContainers))
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	return strings.Join(all, ",")
}

// TestDebug: ephemeral containers are added in the ways of clients. The patch is that of "kubectl debug"
// (debugByEphemeralContainer of k8s.io/kubectl/pkg/cmd/debug).
func TestDebug(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web"))
		config, _ := m.serve(t)
		config.ContentType = contentType
		pods := clientOf(t, config).CoreV1().Pods("default")
		for i, name := range []string{"d1", "d2"} {
			old, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
			must(t, err)
			changed := old.DeepCopy()
			changed.Spec.EphemeralContainers = append(changed.Spec.EphemeralContainers, debugger(name))
			before, err := json.Marshal(old)
			must(t, err)
			after, err := json.Marshal(changed)
			must(t, err)
			patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, old)
			must(t, err)
			if want := i > 0; strings.Contains(string(patch), "$setElementOrder/ephemeralContainers") != want {
				t.Fatalf("%s", patch)
			}
			got, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "ephemeralcontainers")
			must(t, err)
			want(t, "after the patch", debuggers(got), strings.Join([]string{"d1", "d2"}[:i+1], ","))
			want(t, "target", got.Spec.EphemeralContainers[i].TargetContainerName, "main")
		}
		last, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		must(t, err)
		outdated := last.DeepCopy()
		last.Spec.EphemeralContainers = append(last.Spec.EphemeralContainers, debugger("d3"))
		got, err := pods.UpdateEphemeralContainers(t.Context(), "web", last, metav1.UpdateOptions{})
		must(t, err)
		want(t, "after the update", debuggers(got), "d1,d2,d3")
		want(t, "calls", m.taken(), "debug default/web d1,debug default/web d2,debug default/web d3")
		if _, err := pods.UpdateEphemeralContainers(t.Context(), "web", outdated, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("an outdated update: %v", err)
		}
		read := decoded[v1.Pod](t, m.get(t, debugPath))
		want(t, "read", debuggers(&read), "d1,d2,d3")
		want(t, "calls", m.taken(), "")
	}
}

// TestDebugRequests: what requests add, and what they may not do.
func TestDebugRequests(t *testing.T) {
	t.Parallel()
	const (
		strategic = "application/strategic-merge-patch+json"
		merge     = "application/merge-patch+json"
		d1        = `{"name":"d1","image":"box","resources":{},"targetContainerName":"main"}`
		d2        = `{"name":"d2","image":"box"}`
		invalid   = `Pod "web" is invalid: spec.ephemeralContainers: `
		reading   = "reading the patch, which may have spec.ephemeralContainers only: "
		unknown   = "the body of the request was in an unknown format - accepted media types include: " + merge + ", " + strategic
	)
	for name, c := range map[string]struct {
		kind, query, body string
		code              int
		message           string // of an error, or what there is
		calls             string
	}{
		"strategic":        {strategic, "", `{"spec":{"ephemeralContainers":[` + d2 + `]}}`, 200, "d1,d2", "debug default/web d2"},
		"charset":          {strategic + "; charset=utf-8", "", `{"spec":{"ephemeralContainers":[` + d2 + `]}}`, 200, "d1,d2", "debug default/web d2"},
		"order":            {strategic, "", `{"spec":{"$setElementOrder/ephemeralContainers":[{"name":"d1"},{"name":"d2"}],"ephemeralContainers":[` + d2 + `]}}`, 200, "d1,d2", "debug default/web d2"},
		"the same":         {strategic, "", `{"spec":{"ephemeralContainers":[` + d1 + `]}}`, 200, "d1", ""},
		"nothing":          {strategic, "", `{}`, 200, "d1", ""},
		"nothing to merge": {merge, "", `{}`, 200, "d1", ""},
		"merge":            {merge, "", `{"spec":{"ephemeralContainers":[` + d1 + "," + d2 + `]}}`, 200, "d1,d2", "debug default/web d2"},
		"another order":    {merge, "", `{"spec":{"ephemeralContainers":[` + d2 + "," + d1 + `]}}`, 200, "d1,d2", "debug default/web d2"},
		"dry run":          {merge, "?dryRun=All", `{"spec":{"ephemeralContainers":[` + d1 + "," + d2 + `]}}`, 200, "d1,d2", ""},
		"no dry run":       {merge, "?dryRun=no", `{}`, 422, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["no"]: supported values: "All"`, ""},
		"removed":          {merge, "", `{"spec":{"ephemeralContainers":[` + d2 + `]}}`, 422, invalid + `Forbidden: existing ephemeral containers "d1" may not be removed`, ""},
		"all removed":      {merge, "", `{"spec":{"ephemeralContainers":[]}}`, 422, invalid + `Forbidden: existing ephemeral containers "d1" may not be removed`, ""},
		"changed":          {strategic, "", `{"spec":{"ephemeralContainers":[{"name":"d1","image":"new"}]}}`, 422, invalid + `Forbidden: existing ephemeral containers "d1" may not be changed`, ""},
		"twice":            {merge, "", `{"spec":{"ephemeralContainers":[` + d1 + "," + d2 + "," + d2 + `]}}`, 422, `Pod "web" is invalid: spec.ephemeralContainers[name]: Duplicate value: "d2"`, ""},
		"another field":    {strategic, "", `{"metadata":{"labels":{"a":"b"}}}`, 400, reading + `json: unknown field "metadata"`, ""},
		"of the spec":      {merge, "", `{"spec":{"containers":[]}}`, 400, reading + `json: unknown field "containers"`, ""},
		"of a container":   {merge, "", `{"spec":{"ephemeralContainers":[{"name":"d2","color":"red"}]}}`, 400, reading + `json: unknown field "color"`, ""},
		"a directive":      {strategic, "", `{"spec":{"ephemeralContainers":[{"name":"d1","$patch":"delete"}]}}`, 400, reading + `json: unknown field "$patch"`, ""},
		"two documents":    {merge, "", `{}{}`, 400, reading + "something follows it", ""},
		"no JSON":          {merge, "", "spec: {}", 400, reading + "invalid character 's' looking for beginning of value", ""},
		"no body":          {merge, "", "", 400, reading + "EOF", ""},
		"JSON patch":       {"application/json-patch+json", "", `[]`, 415, unknown, ""},
		"apply":            {"application/apply-patch+yaml", "", `{}`, 415, unknown, ""},
		"no type":          {"", "", `{}`, 415, unknown, ""},
		"JSON":             {"application/json", "", `{}`, 415, unknown, ""},
	} {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web", func(p *v1.Pod) { p.Spec.EphemeralContainers = []v1.EphemeralContainer{debugger("d1")} }))
		a := m.ask(t, http.MethodPatch, debugPath+c.query, c.body, "Content-Type", c.kind)
		want(t, name, m.taken(), c.calls)
		if c.code != http.StatusOK {
			failed(t, name, a, c.code, c.message)
			continue
		}
		got := decoded[v1.Pod](t, a)
		want(t, name, fmt.Sprint(a.code, debuggers(&got)), fmt.Sprint(c.code, c.message))
	}
}

// TestDebugReplaced: a pod that replaces another one.
func TestDebugReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	for body, expect := range map[string]string{
		`{"metadata":{"name":"job"}}`:                       "400 the name of the object (job) does not match the name on the URL (web)",
		`{"metadata":{"name":"web","resourceVersion":"7"}}`: `409 Operation cannot be fulfilled on pods "web": the object has been modified; please apply your changes to the latest version and try again`,
		`{"kind":"Service","apiVersion":"v1"}`:              "400 the body of the request is no Pod",
		"":                                                  "400 the request has no body",
	} {
		s := decoded[metav1.Status](t, m.ask(t, http.MethodPut, debugPath, body))
		want(t, body, fmt.Sprint(s.Code, " ", s.Message), expect)
	}
	want(t, "not there", m.ask(t, http.MethodPut, podsPath+"/none/ephemeralcontainers", "{}").code, http.StatusNotFound)
	want(t, "Accept", m.ask(t, http.MethodPut, debugPath, `{"metadata":{"name":"web"},"spec":{"ephemeralContainers":[{"name":"d"}]}}`, "Accept", "text/html").code, http.StatusNotAcceptable)
	want(t, "calls", m.taken(), "")
}

// TestDebugFails: the error of a container that does not start, and which ones were started before.
func TestDebugFails(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	const body = `{"spec":{"ephemeralContainers":[{"name":"d1"},{"name":"d2"},{"name":"d3"}]}}`
	m.debug = func(_ *v1.Pod, c v1.EphemeralContainer) error {
		if c.Name == "d2" {
			return errors.New("the pod does not run")
		}
		return nil
	}
	ask := func() answer {
		return m.ask(t, http.MethodPatch, debugPath, body, "Content-Type", string(types.MergePatchType))
	}
	failed(t, "any error", ask(), http.StatusConflict, `Operation cannot be fulfilled on pods "web": the pod does not run`)
	want(t, "calls", m.taken(), "debug default/web d1,debug default/web d2")
	m.debug = func(*v1.Pod, v1.EphemeralContainer) error {
		return fmt.Errorf("wrapped: %w", apierrors.NewBadRequest("no name"))
	}
	failed(t, "one of the API", ask(), http.StatusBadRequest, "no name")
}
