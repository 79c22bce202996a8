package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// patient gives a pod 30 seconds to end.
func patient(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(30)) }

// TestDelete: how a pod is deleted, and what is answered.
func TestDelete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query, body string
		calls       string // "" for none
		grace       int64  // of the answer
	}{
		"nothing said":                {"", "", "remove default/web 30s", 30},
		"parameter":                   {"?gracePeriodSeconds=5", "", "remove default/web 5s", 5},
		"a longer one":                {"?gracePeriodSeconds=60", "", "remove default/web 30s", 30},
		"longer than time":            {"?gracePeriodSeconds=9223372036854775807", "", "remove default/web 30s", 30},
		"at once":                     {"?gracePeriodSeconds=0", "", "remove default/web 0s", 0},
		"less than nothing":           {"?gracePeriodSeconds=-1", "", "remove default/web 1s", 1},
		"dry run":                     {"?dryRun=All", "", "", 30},
		"policy":                      {"?propagationPolicy=Background", "", "remove default/web 30s", 30},
		"body":                        {"", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":7}`, "remove default/web 7s", 7},
		"body without a kind":         {"", `{"gracePeriodSeconds":7}`, "remove default/web 7s", 7},
		"body of the group":           {"", `{"kind":"DeleteOptions","apiVersion":"policy/v1","gracePeriodSeconds":7}`, "remove default/web 7s", 7},
		"body of the meta group":      {"", `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":7}`, "remove default/web 7s", 7},
		"body in YAML":                {"", "gracePeriodSeconds: 7\n", "remove default/web 7s", 7},
		"the body, not the parameter": {"?gracePeriodSeconds=5", `{"gracePeriodSeconds":7}`, "remove default/web 7s", 7},
		"dry run in the body":         {"", `{"dryRun":["All"]}`, "", 30},
		"the right UID":               {"", `{"preconditions":{"uid":"uid-default-web"}}`, "remove default/web 30s", 30},
		"the right version":           {"", `{"preconditions":{"resourceVersion":"1003"}}`, "remove default/web 30s", 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.set(mirror.Pods, pod("default", "web", patient))
			a := m.ask(t, http.MethodDelete, podsPath+"/web"+c.query, c.body)
			synctest.Wait()
			want(t, name, a.code, http.StatusOK)
			want(t, name, m.taken(), c.calls)
			p := decoded[v1.Pod](t, a)
			if p.Kind != "Pod" || p.DeletionTimestamp == nil || !p.DeletionTimestamp.Time.Equal(time.Now().Add(time.Duration(c.grace)*time.Second)) || *p.DeletionGracePeriodSeconds != c.grace {
				t.Errorf("%s: %s", name, a.body)
			}
			stored, _, _ := m.FindPod(t.Context(), "default", "web")
			if stored.DeletionTimestamp != nil {
				t.Errorf("%s: the object of the store was changed", name)
			}
		})
	}
}

// TestDeleteRefused: what is not understood, or means another pod, removes nothing.
func TestDeleteRefused(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	const invalid = `DeleteOptions.meta.k8s.io "" is invalid: `
	for name, c := range map[string]struct {
		path, body string
		code       int
		message    string
	}{
		"not there":          {"none", "", http.StatusNotFound, `pods "none" not found`},
		"a word for seconds": {"web?gracePeriodSeconds=soon", "", http.StatusBadRequest, `strconv.ParseInt: parsing "soon": invalid syntax`},
		"dry run":            {"web?dryRun=true", "", http.StatusUnprocessableEntity, invalid + `dryRun: Unsupported value: ["true"]: supported values: "All"`},
		"no dry run":         {"web?dryRun=false", "", http.StatusUnprocessableEntity, invalid + `dryRun: Unsupported value: ["false"]: supported values: "All"`},
		"dry run in a body":  {"web", `{"dryRun":["all"]}`, http.StatusUnprocessableEntity, invalid + `dryRun: Unsupported value: ["all"]: supported values: "All"`},
		"UID":                {"web", `{"preconditions":{"uid":"other"}}`, http.StatusConflict, `Operation cannot be fulfilled on pods "web": the UID in the precondition (other) does not match the UID in record (uid-default-web). The object might have been deleted and then recreated`},
		"version":            {"web", `{"preconditions":{"resourceVersion":"7"}}`, http.StatusConflict, `Operation cannot be fulfilled on pods "web": the ResourceVersion in the precondition (7) does not match the ResourceVersion in record (1003). The object might have been modified`},
		"another kind":       {"web", `{"kind":"Pod","apiVersion":"v1"}`, http.StatusBadRequest, "the body of the request is no DeleteOptions"},
		"the type of Accept": {"web", "", http.StatusNotAcceptable, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
	} {
		accept := "application/json"
		if c.code == http.StatusNotAcceptable {
			accept = "text/html"
		}
		failed(t, name, m.ask(t, http.MethodDelete, podsPath+"/"+c.path, c.body, "Accept", accept), c.code, c.message)
	}
	want(t, "calls", m.taken(), "")
}

// TestRemovesOnce: a pod that is being removed is not removed again, but may be later.
func TestRemovesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web", patient), pod("default", "job", patient))
		m.remove = func(_ context.Context, _ *v1.Pod, grace time.Duration) error {
			time.Sleep(grace)
			return errors.New("it goes on")
		}
		for range 3 {
			want(t, "code", m.ask(t, http.MethodDelete, podsPath+"/web", "").code, http.StatusOK)
			want(t, "eviction", m.ask(t, http.MethodPost, podsPath+"/web/eviction", "{}").code, http.StatusCreated)
			synctest.Wait()
		}
		want(t, "another one", m.ask(t, http.MethodDelete, podsPath+"/job", "").code, http.StatusOK)
		synctest.Wait()
		want(t, "calls", m.taken(), "remove default/web 30s,remove default/job 30s")
		time.Sleep(31 * time.Second)
		want(t, "after an error", m.ask(t, http.MethodDelete, podsPath+"/web", "").code, http.StatusOK)
		synctest.Wait()
		want(t, "calls", m.taken(), "remove default/web 30s")
		time.Sleep(31 * time.Second)
	})
}

// TestRemovesSooner: a pod that is being removed ends sooner if a client wants that, and never later.
func TestRemovesSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web", patient))
		begun := time.Now()
		m.remove = func(ctx context.Context, _ *v1.Pod, grace time.Duration) error {
			select {
			case <-time.After(grace):
				m.called("killed %s", time.Since(begun))
			case <-ctx.Done():
				time.Sleep(100 * time.Millisecond)
			}
			return ctx.Err()
		}
		del := func(query string) v1.Pod {
			t.Helper()
			a := m.ask(t, http.MethodDelete, podsPath+"/web"+query, "")
			want(t, "code", a.code, http.StatusOK)
			synctest.Wait()
			return decoded[v1.Pod](t, a)
		}
		del("")
		time.Sleep(time.Second)
		del("?gracePeriodSeconds=29") // the same moment
		want(t, "calls", m.taken(), "remove default/web 30s")
		want(t, "seconds", *del("?gracePeriodSeconds=10").DeletionGracePeriodSeconds, 10)
		del("?gracePeriodSeconds=20")
		time.Sleep(time.Second)
		want(t, "calls", m.taken(), "cancelled,remove default/web 10s")
		want(t, "seconds", *del("?gracePeriodSeconds=0").DeletionGracePeriodSeconds, 0)
		time.Sleep(time.Minute)
		want(t, "calls", m.taken(), "cancelled,remove default/web 0s,killed 2.1s")
		del("") // which is another removal
		time.Sleep(time.Minute)
		want(t, "calls", m.taken(), "remove default/web 30s,killed 1m32s")
	})
}

// TestDeleteCollection: the pods that are selected are removed.
func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	for query, expect := range map[string]string{
		"default/pods?":                                "a,b,c",
		"default/pods?labelSelector=app%3Dx":           "a,b",
		"default/pods?fieldSelector=metadata.name%3Db": "b",
		"default/pods?limit=1":                         "a",
		"default/pods?labelSelector=none":              "",
		"none/pods?":                                   "",
		"default/pods?dryRun=All":                      "dry a,b,c",
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.set(mirror.Pods, pod("default", "a", labelled("app", "x")), pod("default", "b", labelled("app", "x")), pod("default", "c"), pod("other", "d"))
			dry := strings.HasPrefix(expect, "dry ")
			a := m.ask(t, http.MethodDelete, "/api/v1/namespaces/"+query, "")
			want(t, query, names(t, a), strings.TrimPrefix(expect, "dry "))
			synctest.Wait()
			for _, name := range []string{"a", "b", "c", "d"} {
				m.mu.Lock()
				removed := strings.Contains(strings.Join(m.calls, ","), "/"+name+" ")
				m.mu.Unlock()
				want(t, query+" "+name, removed, !dry && strings.Contains(expect, name))
			}
		})
	}
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"))
	failed(t, "a field", m.ask(t, http.MethodDelete, podsPath+"?fieldSelector=x%3Dy", ""), http.StatusBadRequest, "field label not supported: x")
	failed(t, "an option", m.ask(t, http.MethodDelete, podsPath, `{"dryRun":["x"]}`), http.StatusUnprocessableEntity, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`)
	want(t, "calls", m.taken(), "")
}

// TestDeleteByClient: a client deletes as it deletes from a cluster, in each encoding.
func TestDeleteByClient(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		m := newMachine()
		removed := make(chan time.Duration, 2)
		m.remove = func(_ context.Context, _ *v1.Pod, grace time.Duration) error {
			removed <- grace
			return nil
		}
		m.set(mirror.Pods, pod("default", "web"), pod("default", "job"))
		config, _ := m.serve(t)
		config.ContentType = contentType
		pods := clientOf(t, config).CoreV1().Pods("default")
		must(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(3)), Preconditions: metav1.NewUIDPreconditions("uid-default-web")}))
		want(t, "grace", <-removed, 3*time.Second)
		if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("x")}); !apierrors.IsConflict(err) {
			t.Errorf("%v", err)
		}
		must(t, pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "job"}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(4))}}))
		want(t, "grace", <-removed, 4*time.Second)
		must(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}))
	}
}

// TestEviction: evictions are deletions, and say when they are none.
func TestEviction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "web", patient))
		evict := func(query, body string) answer {
			return m.ask(t, http.MethodPost, podsPath+"/web/eviction"+query, body)
		}
		for name, c := range map[string]struct{ query, body, calls string }{
			"all is said":       {"", `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web","namespace":"default"},"deleteOptions":{"gracePeriodSeconds":2}}`, "remove default/web 2s"},
			"nothing is said":   {"", "{}", "remove default/web 30s"},
			"dry run":           {"?dryRun=All", "{}", ""},
			"dry run in both":   {"?dryRun=All", `{"deleteOptions":{"dryRun":["All"]}}`, ""},
			"dry run in a body": {"", `{"deleteOptions":{"dryRun":["All"]}}`, ""},
		} {
			a := evict(c.query, c.body)
			synctest.Wait()
			want(t, name, fmt.Sprint(a.code, decoded[metav1.Status](t, a).Status), "201Success")
			want(t, name, m.taken(), c.calls)
		}
		failed(t, "another pod", evict("", `{"metadata":{"name":"job"}}`), http.StatusBadRequest, "name in URL does not match name in Eviction object")
		failed(t, "nothing", evict("", ""), http.StatusBadRequest, "the request has no body")
		failed(t, "another kind", evict("", `{"kind":"Pod","apiVersion":"v1"}`), http.StatusBadRequest, "the body of the request is no Eviction")
		failed(t, "a dry run, or not", evict("?dryRun=x", "{}"), http.StatusUnprocessableEntity, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`)
		failed(t, "two dry runs", evict("?dryRun=All", `{"deleteOptions":{"dryRun":["x"]}}`), http.StatusBadRequest, "Non-matching dry-run options in request and content: [All] and [x]")
		failed(t, "an odd dry run", evict("", `{"deleteOptions":{"dryRun":["x"]}}`), http.StatusUnprocessableEntity, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`)
		failed(t, "a condition", evict("", `{"deleteOptions":{"preconditions":{"uid":"x"}}}`), http.StatusConflict, `Operation cannot be fulfilled on pods "web": the UID in the precondition (x) does not match the UID in record (uid-default-web). The object might have been deleted and then recreated`)
		failed(t, "not there", m.ask(t, http.MethodPost, podsPath+"/none/eviction", "{}"), http.StatusNotFound, `pods "none" not found`)
		failed(t, "a get", m.get(t, podsPath+"/web/eviction"), http.StatusMethodNotAllowed, `get is not supported on resources of kind "pods/eviction"`)
		synctest.Wait()
		want(t, "calls", m.taken(), "")
	})
}

// TestReadOnly: nothing is created or changed, and the answer says why.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	c := m.client(t)
	sentence := func(verb, resource string) string {
		return "this server does not " + verb + " " + resource + `: what it shows is what "runonce run" has started, or "runonce watch"`
	}
	_, create := c.CoreV1().Pods("default").Create(t.Context(), pod("default", "new"), metav1.CreateOptions{})
	_, update := c.CoreV1().Pods("default").Update(t.Context(), pod("default", "web"), metav1.UpdateOptions{})
	_, patch := c.CoreV1().Pods("default").Patch(t.Context(), "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	_, service := c.CoreV1().Services("default").Create(t.Context(), &v1.Service{}, metav1.CreateOptions{})
	for text, err := range map[string]error{
		sentence("create", "pods"): create, sentence("update", "pods"): update, sentence("patch", "pods"): patch,
		sentence("create", "services"): service, sentence("delete", "nodes"): c.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}),
		sentence("delete", "events"): c.CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%v is of another kind", err)
		}
		want(t, "message", fmt.Sprint(err), text)
	}
	want(t, "calls", m.taken(), "")
}
