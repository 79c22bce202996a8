package apiserver_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

const podsPath = "/api/v1/namespaces/default/pods"

// TestClients: every kind of client gets the same objects.
func TestClients(t *testing.T) {
	t.Parallel()
	m := newMachine()
	web := pod("default", "web", labelled("app", "web"))
	m.set(mirror.Pods, web, pod("other", "job"))
	config, _ := m.serve(t)
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		config.ContentType = contentType
		c := clientOf(t, config)
		list, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		want(t, "pods by "+contentType, len(list.Items), 2)
		want(t, "version", list.ResourceVersion, m.version())
		got, err := c.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		must(t, err)
		if diff := cmp.Diff(web.Spec, got.Spec); diff != "" || got.Labels["app"] != "web" || got.ResourceVersion != web.ResourceVersion {
			t.Errorf("by %s: %v\n%s", contentType, got, diff)
		}
		if _, err := c.CoreV1().Pods("default").Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("by %s: %v", contentType, err)
		}
		empty, err := c.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		want(t, "services", len(empty.Items), 0)
	}
	want(t, "kind in the store, where it is shared", web.Kind, "")
	config.ContentType = ""
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	anything, err := dynamic.NewForConfig(config)
	must(t, err)
	u, err := anything.Resource(pods).Namespace("default").Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	want(t, "dynamic", u.GetAPIVersion()+" "+u.GetKind()+" "+u.GetName(), "v1 Pod web")
	metadatas, err := metadata.NewForConfig(config)
	must(t, err)
	meta, err := metadatas.Resource(pods).Namespace("default").Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	want(t, "metadata", fmt.Sprint(meta.Name, meta.Labels), "webmap[app:web]")
	metas, err := metadatas.Resource(pods).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	want(t, "metadata of all", fmt.Sprintf("%d %s", len(metas.Items), metas.ResourceVersion), "2 "+m.version())
	must(t, metadatas.Resource(pods).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
}

// TestRepresentations: the first clause of Accept that can be had decides.
func TestRepresentations(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	const (
		asTable    = ";as=Table;v=v1;g=meta.k8s.io"
		asMetadata = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
		asList     = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
		acceptable = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
	)
	for accept, expect := range map[string]struct{ list, one string }{
		"":                           {"PodList", "Pod"},
		"*/*":                        {"PodList", "Pod"},
		"application/*":              {"PodList", "Pod"},
		"text/html, */*;q=0.1":       {"PodList", "Pod"},
		"application/json" + asTable: {"Table", "Table"},
		"application/yaml" + asTable + ",application/json":                               {"", ""},
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json":            {"PodList", "Pod"},
		"application/json;as=Table;v=v1;g=other, application/json":                       {"PodList", "Pod"},
		"application/vnd.kubernetes.protobuf" + asTable + ", application/json" + asTable: {"Table", "Table"},
		"application/json" + asMetadata:                                                  {"PartialObjectMetadataList", "PartialObjectMetadata"},
		"application/json" + asList:                                                      {"PartialObjectMetadataList", "PartialObjectMetadata"},
		"application/json;q=0.5, application/json" + asTable + ";q=0.9":                  {"Table", "Table"},
		"text/plain": {acceptable, acceptable},
		"application/json;as=Other;v=v1;g=meta.k8s.io":  {acceptable, acceptable},
		"application/vnd.kubernetes.protobuf" + asTable: {acceptable, acceptable},
		"application/cbor": {acceptable, acceptable},
		";;,/":             {acceptable, acceptable},
	} {
		for path, kind := range map[string]string{podsPath: expect.list, podsPath + "/web": expect.one} {
			a := m.get(t, path, "Accept", accept)
			switch kind {
			case acceptable:
				s := failed(t, accept, a, http.StatusNotAcceptable, acceptable)
				want(t, "reason", s.Reason, metav1.StatusReasonNotAcceptable)
			case "":
				want(t, accept, a.header.Get("Content-Type"), "application/yaml")
				if !strings.Contains(a.body, "kind: Table\n") {
					t.Errorf("%s: %s", accept, a.body)
				}
			default:
				o := decoded[metav1.TypeMeta](t, a)
				want(t, path+" "+accept, fmt.Sprint(a.code, o.Kind, a.header.Get("Content-Type")), fmt.Sprint(http.StatusOK, kind, "application/json"))
			}
		}
	}
	want(t, "caches", m.get(t, podsPath).header.Get("Cache-Control"), "no-cache, private")
	for agent, pretty := range map[string]bool{"curl/8": true, "kubectl/v1.37.0": false} {
		want(t, agent, strings.Contains(m.get(t, podsPath, "User-Agent", agent).body, "\n  "), pretty)
		want(t, agent, strings.Contains(m.get(t, podsPath+"?pretty=true", "User-Agent", agent).body, "\n  "), true)
		want(t, agent, strings.Contains(m.get(t, podsPath+"?pretty=false", "User-Agent", agent).body, "\n  "), false)
	}
}

// TestTables: what kubectl prints, with as much of the objects as it asks for.
func TestTables(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web", labelled("app", "web")))
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for query, kind := range map[string]string{"": "PartialObjectMetadata", "includeObject=Metadata": "PartialObjectMetadata", "includeObject=Object": "Pod", "includeObject=None": ""} {
		for _, path := range []string{podsPath, podsPath + "/web"} {
			table := decoded[metav1.Table](t, m.get(t, path+"?"+query, "Accept", accept))
			if len(table.Rows) != 1 || len(table.ColumnDefinitions) != len(table.Rows[0].Cells) || table.ColumnDefinitions[0].Name != "Name" || table.Rows[0].Cells[0] != "web" {
				t.Fatalf("%s: %+v", query, table)
			}
			want(t, "version", table.ResourceVersion, m.version())
			raw := table.Rows[0].Object.Raw
			if kind == "" {
				want(t, query, string(raw), "")
				continue
			}
			o := decoded[metav1.PartialObjectMetadata](t, answer{body: string(raw)})
			want(t, query, o.Kind+" "+o.Labels["app"], kind+" web")
			want(t, query, strings.Contains(string(raw), "nodeName"), kind == "Pod")
		}
	}
	failed(t, "includeObject", m.get(t, podsPath+"?includeObject=Some", "Accept", accept), http.StatusBadRequest,
		`Unable to convert to Table as requested: includeObject: Invalid value: "Some": must be 'Metadata', 'Object', 'None', or empty`)
	empty := decoded[metav1.Table](t, m.get(t, "/api/v1/namespaces/none/pods", "Accept", accept))
	if len(empty.ColumnDefinitions) == 0 || empty.Rows == nil {
		t.Errorf("no rows: %+v", empty)
	}
	for path, column := range map[string]string{"/api/v1/nodes": "Name", "/api/v1/events": "Last Seen", "/api/v1/services": "Name", "/api/v1/namespaces": "Name"} {
		table := decoded[metav1.Table](t, m.get(t, path, "Accept", accept))
		want(t, path, table.ColumnDefinitions[0].Name, column)
	}
}

// TestSelectors: the objects with the labels and fields that are asked for.
func TestSelectors(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a", labelled("app", "x")), pod("default", "b", labelled("app", "y")), pod("other", "c"),
		pod("default", "d", func(pod *v1.Pod) {
			pod.Spec.NodeName, pod.Spec.RestartPolicy, pod.Spec.SchedulerName = "elsewhere", v1.RestartPolicyAlways, "mine"
			pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = "account", true
			pod.Status.Phase, pod.Status.PodIP, pod.Status.NominatedNodeName = v1.PodFailed, "10.0.0.1", "next"
		}))
	for query, expect := range map[string]string{
		"labelSelector=app":                                                         "a,b",
		"labelSelector=app%3Dx":                                                     "a",
		"labelSelector=app+in+(x,y),app!%3Dy":                                       "a",
		"labelSelector=!app":                                                        "d,c",
		"labelSelector=":                                                            "a,b,d,c",
		"fieldSelector=metadata.name%3Da":                                           "a",
		"fieldSelector=metadata.namespace%3Dother":                                  "c",
		"fieldSelector=metadata.namespace!%3Dother":                                 "a,b,d",
		"fieldSelector=spec.nodeName%3Delsewhere":                                   "d",
		"fieldSelector=spec.host%3Delsewhere":                                       "d",
		"fieldSelector=spec.restartPolicy%3DAlways":                                 "d",
		"fieldSelector=spec.schedulerName%3Dmine":                                   "d",
		"fieldSelector=spec.serviceAccountName%3Daccount":                           "d",
		"fieldSelector=spec.hostNetwork%3Dtrue":                                     "d",
		"fieldSelector=status.phase!%3DRunning":                                     "d",
		"fieldSelector=status.podIP%3D10.0.0.1":                                     "d",
		"fieldSelector=status.nominatedNodeName%3Dnext":                             "d",
		"fieldSelector=status.phase%3DRunning,metadata.name!%3Da&labelSelector=app": "b",
		"unknown=parameter":                                                         "a,b,d,c",
	} {
		want(t, query, names(t, m.get(t, "/api/v1/pods?"+query)), expect)
	}
	const unsupported = "field label not supported: "
	for query, expect := range map[string]string{
		"pods?fieldSelector=spec.hostname%3Dx":       unsupported + "spec.hostname",
		"nodes?fieldSelector=metadata.namespace%3Dx": unsupported + "metadata.namespace",
		"services?fieldSelector=status.phase%3Dx":    unsupported + "status.phase",
		"pods?fieldSelector=metadata.name":           "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
		"pods?labelSelector=a+in+(":                  "unable to parse requirement: found '', expected: ',', ')' or identifier",
		"pods?labelSelector=-":                       "unable to parse requirement: <nil>: Invalid value: \"-\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
		"pods?limit=many":                            `strconv.ParseInt: parsing "many": invalid syntax`,
		"pods?resourceVersion=new":                   `invalid resource version: strconv.ParseUint: parsing "new": invalid syntax`,
		"pods?resourceVersion=-1":                    `invalid resource version: strconv.ParseUint: parsing "-1": invalid syntax`,
	} {
		s := failed(t, query, m.get(t, "/api/v1/"+query), http.StatusBadRequest, expect)
		want(t, "reason", s.Reason, metav1.StatusReasonBadRequest)
	}
	failed(t, "rules", m.get(t, "/api/v1/pods?resourceVersionMatch=Exact"), http.StatusUnprocessableEntity,
		"ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
}

// TestFieldsOfOthers: each kind has fields of its own.
func TestFieldsOfOthers(t *testing.T) {
	t.Parallel()
	m := newMachine()
	event := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e", UID: "e"},
		InvolvedObject: v1.ObjectReference{
			Kind: "Pod", Namespace: "default", Name: "web", UID: "uid-web", APIVersion: "v1", ResourceVersion: "7", FieldPath: "spec.containers{main}",
		},
		Reason: "Started", Source: v1.EventSource{Component: "kubelet"}, ReportingController: "controller", Type: "Normal",
	}
	newer := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f", UID: "f"}, ReportingController: "newer"}
	m.set(mirror.Events, event, newer)
	m.set(mirror.Services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: v1.ServiceSpec{ClusterIP: "None", Type: v1.ServiceTypeClusterIP}})
	for query, expect := range map[string]string{
		"events?involvedObject.kind=Pod":                        "e",
		"events?involvedObject.namespace=default":               "e",
		"events?involvedObject.name=web":                        "e",
		"events?involvedObject.uid=uid-web":                     "e",
		"events?involvedObject.apiVersion=v1":                   "e",
		"events?involvedObject.resourceVersion=7":               "e",
		"events?involvedObject.fieldPath=spec.containers{main}": "e",
		"events?reason=Started":                                 "e",
		"events?reportingComponent=controller":                  "e",
		"events?source=kubelet":                                 "e",
		"events?source=newer":                                   "f",
		"events?type!=Normal":                                   "f",
		"services?spec.clusterIP=None":                          "s",
		"services?spec.type=ClusterIP":                          "s",
		"services?spec.type=NodePort":                           "",
		"nodes?spec.unschedulable=false":                        "node",
		"nodes?metadata.name=node":                              "node",
		"namespaces?status.phase=Active":                        "default",
	} {
		path, selector, _ := strings.Cut(query, "?")
		want(t, query, names(t, m.get(t, "/api/v1/"+path+"?fieldSelector="+url.QueryEscape(selector))), expect)
	}
}

// TestPages: the pages of a list are of one moment, however much changes meanwhile.
func TestPages(t *testing.T) {
	t.Parallel()
	m := newMachine()
	for i := range 10 {
		m.set(mirror.Pods, pod("default", fmt.Sprintf("p%d", i), labelled("even", fmt.Sprint(i%2 == 0))))
	}
	c := m.client(t)
	first := m.version()
	var seen []string
	pages := 0
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := c.CoreV1().Pods("default").List(ctx, o)
		if err != nil {
			return nil, err
		}
		want(t, "version", list.ResourceVersion, first)
		if left := 10 - 3*(pages+1); left > 0 && (list.RemainingItemCount == nil || *list.RemainingItemCount != int64(left)) || left <= 0 && list.RemainingItemCount != nil {
			t.Errorf("page %d: remaining %v, want %d", pages, list.RemainingItemCount, left)
		}
		m.delete("default", fmt.Sprintf("p%d", 9-pages)) // one that is not shown yet
		m.set(mirror.Pods, pod("default", fmt.Sprintf("p%d-new", pages)), pod("default", "p4", labelled("changed", fmt.Sprint(pages))))
		pages++
		return list, nil
	}).EachListItem(t.Context(), metav1.ListOptions{Limit: 3}, func(o runtime.Object) error {
		pod, ok := o.(*v1.Pod)
		if !ok || pod.Labels["changed"] != "" {
			return errors.New("not as it was")
		}
		seen = append(seen, pod.Name)
		return nil
	})
	must(t, err)
	want(t, "pages", pages, 4)
	want(t, "pods", strings.Join(seen, ","), "p0,p1,p2,p3,p4,p5,p6,p7,p8,p9")

	selected, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{Limit: 1, LabelSelector: "even=true"})
	must(t, err)
	if selected.RemainingItemCount != nil || selected.Continue == "" {
		t.Errorf("of a selection: %+v", selected.ListMeta)
	}
	exactly, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{Limit: 100, ResourceVersion: first})
	must(t, err)
	want(t, "with a limit, the very version", exactly.ResourceVersion, first)
}

// TestTokens: tokens of lists that are not, or no longer, those of this server.
func TestTokens(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"), pod("default", "b"))
	token := decoded[v1.PodList](t, m.get(t, podsPath+"?limit=1")).Continue
	want(t, "the next page", names(t, m.get(t, podsPath+"?continue="+token)), "b")
	want(t, "any version will do", names(t, m.get(t, podsPath+"?resourceVersion=0&continue="+token)), "b")
	failed(t, "with a version", m.get(t, podsPath+"?continue="+token+"&resourceVersion="+m.version()), http.StatusBadRequest, "specifying resource version is not allowed when using continue")
	failed(t, "with a match", m.get(t, podsPath+"?continue="+token+"&resourceVersion="+m.version()+"&resourceVersionMatch=Exact"), http.StatusUnprocessableEntity,
		`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided`)
	encoded := base64.RawURLEncoding.EncodeToString
	for text, expect := range map[string]string{
		"%21":                        "illegal base64 data at input byte 0",
		encoded([]byte("x")):         "invalid character 'x' looking for beginning of value",
		encoded([]byte("{}")):        "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
		encoded([]byte(`{"rv":-1}`)): "json: cannot unmarshal number -1 into Go struct field continueToken.rv of type uint64",
	} {
		failed(t, text, m.get(t, podsPath+"?continue="+text), http.StatusBadRequest, "invalid continue token: continue key is not valid: "+expect)
	}
	const expired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter."
	s := failed(t, "a future one", m.get(t, podsPath+"?continue="+encoded([]byte(`{"rv":99999999}`))), http.StatusGone, expired)
	want(t, "reason", s.Reason, metav1.StatusReasonExpired)
	m.age()
	failed(t, "an old one", m.get(t, podsPath+"?continue="+token), http.StatusGone, expired)
}

// age makes so many changes that earlier versions are not known any more.
func (m *machine) age() {
	for i := range 4000 {
		m.set(mirror.Nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "busy", UID: "busy", Labels: map[string]string{"i": fmt.Sprint(i)}}})
	}
}

// TestVersions: lists of a version, and of a later one.
func TestVersions(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"))
	old := m.version()
	m.set(mirror.Pods, pod("default", "b"))
	for query, expect := range map[string]string{
		"":                       "a,b",
		"resourceVersion=0":      "a,b",
		"resourceVersion=" + old: "a,b",
		"resourceVersionMatch=NotOlderThan&resourceVersion=" + old: "a,b",
		"resourceVersionMatch=NotOlderThan&resourceVersion=0":      "a,b",
		"resourceVersionMatch=NotOlderThan&resourceVersion=1":      "a,b",
		"resourceVersionMatch=Exact&resourceVersion=" + old:        "a",
	} {
		want(t, query, names(t, m.get(t, podsPath+"?"+query)), expect)
	}
	s := failed(t, "an old one", m.get(t, podsPath+"?resourceVersionMatch=Exact&resourceVersion=1"), http.StatusGone, "The resourceVersion for the provided list is too old.")
	want(t, "reason", s.Reason, metav1.StatusReasonExpired)

	synced := 0
	m.sync = func() error { synced++; return errors.New("no engine") }
	want(t, "any version", names(t, m.get(t, podsPath+"?resourceVersion=0")), "a,b")
	want(t, "looks for any version, or one that is there", synced, 0)
	for _, path := range []string{podsPath, podsPath + "/a", podsPath + "/a/log", podsPath + "?watch=1"} {
		failed(t, path, m.get(t, path), http.StatusInternalServerError, "Internal error occurred: no engine")
	}
}

// TestFutureVersion: a version that is not known yet is waited for, and then refused as in the API server, so that
// clients list again.
func TestFutureVersion(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "&watch=1", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact", "&limit=1"} {
		synctest.Test(t, func(t *testing.T) {
			m, begun := newMachine(), time.Now()
			a := m.get(t, podsPath+"?resourceVersion=1005"+query)
			want(t, "time", time.Since(begun), 3*time.Second)
			s := failed(t, query, a, http.StatusGatewayTimeout, "Timeout: Too large resource version: 1005, current: 1002")
			if !apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: s}, metav1.CauseTypeResourceVersionTooLarge) || s.Reason != metav1.StatusReasonTimeout {
				t.Errorf("%+v", s)
			}
			want(t, "Retry-After", a.header.Get("Retry-After"), "1")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		go func() {
			time.Sleep(time.Second)
			m.set(mirror.Pods, pod("default", "a"), pod("default", "b"), pod("default", "c"))
		}()
		want(t, "one that comes", names(t, m.get(t, podsPath+"?resourceVersion=1005")), "a,b,c")
	})
}
