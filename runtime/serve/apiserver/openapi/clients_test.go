package openapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	explain "k8s.io/kubectl/pkg/explain/v2"

	"github.com/runonce/runonce/runtime/serve/apiserver/openapi"
)

// resources has the resources of the documents and their kinds.
var resources = map[schema.GroupVersion]map[string]string{
	{Version: "v1"}: {
		"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "events": "Event", "services": "Service",
		"configmaps": "ConfigMap", "secrets": "Secret", "replicationcontrollers": "ReplicationController",
	},
	{Group: "apps", Version: "v1"}: {
		"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet",
	},
	{Group: "batch", Version: "v1"}:                 {"jobs": "Job", "cronjobs": "CronJob"},
	{Group: "events.k8s.io", Version: "v1"}:         {"events": "Event"},
	{Group: "authentication.k8s.io", Version: "v1"}: {"selfsubjectreviews": "SelfSubjectReview"},
	{Group: "authorization.k8s.io", Version: "v1"}: {
		"selfsubjectaccessreviews": "SelfSubjectAccessReview", "selfsubjectrulesreviews": "SelfSubjectRulesReview",
	},
}

func client(t *testing.T) *discovery.DiscoveryClient {
	t.Helper()
	s := httptest.NewServer(openapi.Handler())
	t.Cleanup(s.Close)
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDocuments: the documents are what client-go decodes, and complete.
func TestDocuments(t *testing.T) {
	t.Parallel()
	root := openapi3.NewRoot(client(t).OpenAPIV3())
	groups, err := root.GroupVersions()
	if err != nil || len(groups) != len(resources) {
		t.Fatalf("%v, %v", groups, err)
	}
	for _, group := range groups {
		document, err := root.GVSpec(group)
		if err != nil {
			t.Fatalf("%s: %v", group, err)
		}
		checkReferences(t, root, group, document.Components.Schemas)
		for _, name := range resources[group] {
			kind := group.WithKind(name)
			if findSchema(document, kind) == nil {
				t.Errorf("there is no schema of %s", kind)
			}
			isReview := strings.HasSuffix(name, "Review") // which can only be created, and has no list
			if list := group.WithKind(name + "List"); !isReview && findSchema(document, list) == nil {
				t.Errorf("there is no schema of %s", list)
			}
			if got := canPatch(document, kind); got == isReview {
				t.Errorf("%s can be patched: %t", kind, got)
			}
		}
	}
	core, err := root.GVSpec(schema.GroupVersion{Version: "v1"})
	if err != nil || findSchema(core, schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}) == nil {
		t.Errorf("there is no schema of Eviction: %v", err)
	}
}

// checkReferences checks that all references of a document lead to one of its schemas.
func checkReferences(t *testing.T, root openapi3.Root, group schema.GroupVersion, schemas map[string]*spec.Schema) {
	t.Helper()
	document, err := root.GVSpecAsMap(group)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for rest := range strings.SplitSeq(string(text), `"$ref":"`) {
		name, ok := strings.CutPrefix(rest, "#/components/schemas/")
		if !ok {
			continue // the beginning
		}
		found++
		if name, _, _ = strings.Cut(name, `"`); schemas[name] == nil {
			t.Errorf("%s: there is no schema %s", group, name)
		}
	}
	if want := strings.Count(string(text), `"$ref"`); found != want || found == 0 {
		t.Errorf("%s: checked %d of %d references", group, found, want)
	}
}

const kindExtension = "x-kubernetes-group-version-kind"

func findSchema(document *spec3.OpenAPI, kind schema.GroupVersionKind) *spec.Schema {
	for _, s := range document.Components.Schemas {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject(kindExtension, &kinds); err == nil && slices.Contains(kinds, kind) {
			return s
		}
	}
	return nil
}

// canPatch tells whether all that kubectl wants to know about patching a kind is there: fields are validated, and
// strategic merge patches are understood.
func canPatch(document *spec3.OpenAPI, kind schema.GroupVersionKind) bool {
	for _, p := range document.Paths.Paths {
		var of schema.GroupVersionKind
		if p.Patch == nil || p.Patch.Extensions.GetObject(kindExtension, &of) != nil || of != kind {
			continue
		}
		_, merges := p.Patch.RequestBody.Content["application/strategic-merge-patch+json"]
		return merges && slices.ContainsFunc(p.Patch.Parameters, func(p *spec3.Parameter) bool {
			return p.Name == "fieldValidation" && p.In == "query"
		})
	}
	return false
}

// TestMerge: "kubectl apply" learns from the schemas which lists are merged, and by what.
func TestMerge(t *testing.T) {
	t.Parallel()
	document, err := openapi3.NewRoot(client(t).OpenAPIV3()).GVSpec(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	lookup := strategicpatch.PatchMetaFromOpenAPIV3{
		Schema:     findSchema(document, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}),
		SchemaList: document.Components.Schemas,
	}
	before := []byte(`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"x"}]}}`)
	after := []byte(`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}`)
	patch, err := strategicpatch.CreateThreeWayMergePatch(before, after, before, lookup, true)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"image":"y","name":"b"}]}}`
	if diff := cmp.Diff(want, string(patch)); diff != "" {
		t.Error(diff)
	}
}

// TestVersion2: clients can decode the document, which is empty.
func TestVersion2(t *testing.T) {
	t.Parallel()
	document, err := client(t).OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	if document.GetSwagger() != "2.0" || document.GetInfo().GetTitle() != "Kubernetes" || document.GetInfo().GetVersion() != "unversioned" {
		t.Errorf("got %v", document)
	}
	if n := len(document.GetDefinitions().GetAdditionalProperties()); n != 0 {
		t.Errorf("got %d definitions", n)
	}
}

// TestExplain runs what "kubectl explain" does once it knows the resource.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := client(t).OpenAPIV3()
	describe := func(group schema.GroupVersion, path string, recursive bool) string {
		t.Helper()
		fields := strings.Split(path, ".")
		var b strings.Builder
		err := explain.PrintModelDescription(fields[1:], &b, c, group.WithResource(fields[0]), recursive, 0, "plaintext")
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return b.String()
	}
	for group, all := range resources {
		for resource, kind := range all {
			if got := describe(group, resource, true); !strings.Contains(got, "KIND:       "+kind+"\n") || !strings.Contains(got, "\n  metadata\t<ObjectMeta>") {
				t.Errorf("%s: %s", resource, got)
			}
		}
	}
	got := describe(schema.GroupVersion{Version: "v1"}, "pods.spec.containers.livenessProbe", false)
	for _, want := range []string{"FIELD: livenessProbe <Probe>\n", "\n  httpGet\t<HTTPGetAction>\n", "Minimum value is 1.\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in %s", want, got)
		}
	}
	if got := describe(schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments.spec.template.spec.volumes", true); !strings.Contains(got, "  configMap\t<ConfigMapVolumeSource>\n") {
		t.Error(got)
	}
}
