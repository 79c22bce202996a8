package apiserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// TestDiscovery: clients find the same resources both ways.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	config, _ := newMachine().serve(t)
	found := map[bool]map[string]metav1.APIResource{}
	for _, legacy := range []bool{false, true} {
		c, err := discovery.NewDiscoveryClientForConfig(config)
		must(t, err)
		c.UseLegacyDiscovery = legacy
		groups, resources, err := c.ServerGroupsAndResources()
		must(t, err)
		var names []string
		for _, g := range groups {
			want(t, "preferred version of "+g.Name, g.PreferredVersion.GroupVersion, g.Versions[0].GroupVersion)
			names = append(names, g.PreferredVersion.GroupVersion)
		}
		want(t, "groups", strings.Join(names, " "), "v1 apps/v1 batch/v1 events.k8s.io/v1 metrics.k8s.io/v1beta1 authentication.k8s.io/v1 authorization.k8s.io/v1")
		found[legacy] = map[string]metav1.APIResource{}
		for _, list := range resources {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			must(t, err)
			for _, r := range list.APIResources {
				if r.Version == "" { // it is then that of the list
					r.Group, r.Version = gv.Group, gv.Version
				}
				if strings.Contains(r.Name, "/") {
					r.SingularName = "" // clients set it with the aggregated discovery only
				}
				found[legacy][list.GroupVersion+" "+r.Name] = r
			}
		}
	}
	if diff := cmp.Diff(found[true], found[false]); diff != "" {
		t.Errorf("legacy (-) and aggregated (+) discovery:\n%s", diff)
	}
	for name, expect := range map[string]string{
		"v1 pods":                     "Pod [get list watch delete deletecollection] [po] [all] true",
		"v1 pods/eviction":            "Eviction [create] [] [] true",
		"v1 pods/log":                 "Pod [get] [] [] true",
		"v1 pods/exec":                "PodExecOptions [create get] [] [] true",
		"v1 services":                 "Service [get list watch] [svc] [all] true",
		"v1 nodes":                    "Node [get list watch] [no] [] false",
		"v1 nodes/proxy":              "NodeProxyOptions [get] [] [] false",
		"v1 namespaces":               "Namespace [get list watch] [ns] [] false",
		"v1 events":                   "Event [get list watch] [ev] [] true",
		"v1 configmaps":               "ConfigMap [get list watch] [cm] [] true",
		"v1 secrets":                  "Secret [get list watch] [] [] true",
		"apps/v1 deployments":         "Deployment [get list watch] [deploy] [all] true",
		"batch/v1 cronjobs":           "CronJob [get list watch] [cj] [all] true",
		"events.k8s.io/v1 events":     "Event [get list watch] [ev] [] true",
		"metrics.k8s.io/v1beta1 pods": "PodMetrics [get list] [] [] true",
		"authorization.k8s.io/v1 selfsubjectaccessreviews": "SelfSubjectAccessReview [create] [] [] false",
	} {
		r := found[true][name]
		want(t, name, fmt.Sprintln(r.Kind, r.Verbs, r.ShortNames, r.Categories, r.Namespaced), expect+"\n")
	}
	want(t, "group of evictions", found[true]["v1 pods/eviction"].Group, "policy")
}

// TestDiscoveryOfKubectl: kubectl knows resources by their short names and kinds, and which ones may be listed.
func TestDiscoveryOfKubectl(t *testing.T) {
	t.Parallel()
	config, _ := newMachine().serve(t)
	c, err := discovery.NewDiscoveryClientForConfig(config)
	must(t, err)
	preferred, err := c.ServerPreferredResources()
	must(t, err)
	var all []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, preferred) {
		for _, r := range list.APIResources {
			all = append(all, r.Name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all) // there are two of events
	want(t, "what can be watched", strings.Join(all, " "), "configmaps cronjobs daemonsets deployments events jobs namespaces nodes pods replicasets replicationcontrollers secrets services statefulsets")

	cached := memory.NewMemCacheClient(c)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	for name, expect := range map[string]string{"po": "pods", "pod": "pods", "svc": "services", "no": "nodes", "ns": "namespaces", "ev": "events"} {
		r, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: name})
		must(t, err)
		if r.Group == "events.k8s.io" { // any of the two is the first one, as with an API server
			r.Group = ""
		}
		want(t, name, r, schema.GroupVersionResource{Version: "v1", Resource: expect})
	}
	_, err = mapper.ResourceFor(schema.GroupVersionResource{Resource: "ingresses"})
	if noMatch := (&meta.NoResourceMatchError{}); !errors.As(err, &noMatch) {
		t.Errorf("ingresses: %v", err)
	}
	v, err := c.ServerVersion()
	must(t, err)
	want(t, "version", v.Major+" "+v.Minor+" "+v.GitVersion, "1 37 v1.37.0+runonce")
}

// TestNotThere: what does not exist is said in a Status.
func TestNotThere(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set("pods", pod("default", "web"))
	for _, path := range []string{
		"/api/v2", "/api/v1/deployments", "/api/v1/namespaces/default/nodes", "/apis/policy", "/apis/policy/v1", "/apis/policy/v1/poddisruptionbudgets", "/apis/apps/v1beta1", "/apis/apps/v1/pods",
		"/apis/metrics.k8s.io/v1", "/apis/metrics.k8s.io/v1beta1/events", "/api/v1/pods/web", "/api/v1/namespaces/default/pods/web/resize",
		"/api/v1/namespaces/default/pods/web/log/more", "/api/v1/namespaces/default/pods/web/status/", "/api/v1/namespaces/default/pods/web/exec/x",
		"/api/v1/namespaces/default/pods/web/eviction/x/y", "/api/v1/namespaces/default/status", "/apis/authentication.k8s.io/v1/selfsubjectreviews/x/y",
	} {
		a := m.get(t, path)
		if strings.HasSuffix(path, "/") { // a slash at the end says nothing, as in the API server
			want(t, path, a.code, http.StatusOK)
			continue
		}
		failed(t, path, a, http.StatusNotFound, "the server could not find the requested resource")
	}
	s := failed(t, "a pod", m.get(t, "/api/v1/namespaces/other/pods/web"), http.StatusNotFound, `pods "web" not found`)
	want(t, "details", fmt.Sprint(s.Details.Name, s.Details.Kind), "webpods")
	failed(t, "a node", m.get(t, "/api/v1/nodes/none"), http.StatusNotFound, `nodes "none" not found`)
	failed(t, "a part of a pod", m.get(t, "/api/v1/namespaces/default/pods/none/log"), http.StatusNotFound, `pods "none" not found`)
	failed(t, "metrics", m.get(t, "/apis/metrics.k8s.io/v1beta1/nodes/none/proxy"), http.StatusNotFound, "the server could not find the requested resource")
}

// TestMethods: methods that nothing has are refused as the API server refuses them, and reads of discovery only read.
func TestMethods(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set("pods", pod("default", "web"))
	const text = "the server does not allow this method on the requested resource"
	for _, path := range []string{"/api", "/api/", "/api/v1", "/apis", "/apis/", "/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1"} {
		want(t, path, m.get(t, path).code, http.StatusOK)
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodDelete, http.MethodOptions} {
			a := m.ask(t, method, path, "")
			failed(t, method+" "+path, a, http.StatusMethodNotAllowed, text)
			want(t, "Allow", a.header.Get("Allow"), "")
		}
	}
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods/web", "/api/v1/namespaces/default/pods/web/log", "/apis/authentication.k8s.io/v1/selfsubjectreviews"} {
		for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodTrace, "BREW"} {
			failed(t, method+" "+path, m.ask(t, method, path, ""), http.StatusMethodNotAllowed, text)
		}
	}
	failed(t, "a log", m.ask(t, http.MethodPost, "/api/v1/namespaces/default/pods/web/log", ""), http.StatusMethodNotAllowed, `create is not supported on resources of kind "pods/log"`)
	failed(t, "a review", m.get(t, "/apis/authentication.k8s.io/v1/selfsubjectreviews"), http.StatusMethodNotAllowed, `get is not supported on resources of kind "selfsubjectreviews.authentication.k8s.io"`)
	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		a := m.get(t, path)
		want(t, path, fmt.Sprint(a.code, a.body), "200ok")
	}
}
