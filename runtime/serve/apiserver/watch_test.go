package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// event is what a watch sends.
type event struct {
	Type   watch.EventType
	Object json.RawMessage
}

// String says what has happened to which object, with its version.
func (e event) String() string {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(e.Object, &o.Object); err != nil {
		return err.Error()
	}
	if e.Type == watch.Error {
		return fmt.Sprintf("ERROR %v %v", o.Object["code"], o.Object["message"])
	}
	text := strings.TrimSpace(fmt.Sprintf("%s %s", e.Type, o.GetName())) + " " + o.GetResourceVersion()
	if len(o.GetAnnotations()) > 0 {
		text += fmt.Sprint(" ", o.GetAnnotations())
	}
	return text
}

// watching has a client watch in a bubble of its own, during which something happens, and returns the events.
func watching(t *testing.T, query string, before, during func(m *machine), header ...string) (events []event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		if before != nil {
			before(m)
		}
		go func() {
			synctest.Wait() // it watches
			if during != nil {
				during(m)
			}
		}()
		a := m.get(t, query, header...)
		if a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, a.code, a.body)
		}
		want(t, "type", a.header.Get("Content-Type"), "application/json")
		d := json.NewDecoder(strings.NewReader(a.body))
		for {
			var e event
			if err := d.Decode(&e); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	})
	return events
}

// said returns what the events say, each in a line.
func said(events []event) string {
	all := make([]string, 0, len(events))
	for _, e := range events {
		all = append(all, e.String())
	}
	return strings.Join(all, "\n")
}

// TestWatch: what there is, and what happens.
func TestWatch(t *testing.T) {
	t.Parallel()
	before := func(m *machine) { // the versions are 1003 to 1005
		m.set(mirror.Pods, pod("default", "a", labelled("app", "x")), pod("default", "b"), pod("other", "c", labelled("app", "x")))
	}
	during := func(m *machine) {
		m.set(mirror.Pods, pod("default", "a", labelled("app", "y")))                                      // 1006
		m.set(mirror.Pods, pod("default", "b", labelled("app", "x")))                                      // 1007
		m.set(mirror.Pods, pod("default", "b", labelled("app", "x"), labelled("more", "1")))               // 1008
		m.delete("other", "c")                                                                             // 1009
		m.set(mirror.Pods, pod("default", "a", labelled("app", "y"), func(p *v1.Pod) { p.UID = "again" })) // 1010, 1011
		m.set(mirror.Pods, pod("default", "d", labelled("app", "x")))                                      // 1012
		m.delete("default", "d")                                                                           // 1013
	}
	const all = "MODIFIED a 1006\nMODIFIED b 1007\nMODIFIED b 1008\nDELETED c 1009\nDELETED a 1010\nADDED a 1011\nADDED d 1012\nDELETED d 1013"
	const state, end = "ADDED a 1003\nADDED b 1004\nADDED c 1005\n", " map[k8s.io/initial-events-end:true]"
	for query, expect := range map[string]string{
		"pods?":                                            state + all,
		"pods?resourceVersion=0&":                          state + all,
		"pods?resourceVersion=1005&":                       all,
		"pods?resourceVersion=1003&":                       "ADDED b 1004\nADDED c 1005\n" + all,
		"pods?allowWatchBookmarks=1&":                      state + "BOOKMARK 1005" + end + "\n" + all + "\nBOOKMARK 1013",
		"pods?allowWatchBookmarks=1&resourceVersion=1005&": all + "\nBOOKMARK 1013",
		"pods?sendInitialEvents=false&resourceVersionMatch=NotOlderThan&":                         all,
		"pods?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&": state + "BOOKMARK 1005" + end + "\n" + all + "\nBOOKMARK 1013",
		"pods?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1003&":     state + all,
		"pods?labelSelector=app%3Dx&":                                            "ADDED a 1003\nADDED c 1005\nDELETED a 1006\nADDED b 1007\nMODIFIED b 1008\nDELETED c 1009\nADDED d 1012\nDELETED d 1013",
		"pods?resourceVersion=1005&labelSelector=app%3Dx&allowWatchBookmarks=1&": "DELETED a 1006\nADDED b 1007\nMODIFIED b 1008\nDELETED c 1009\nADDED d 1012\nDELETED d 1013\nBOOKMARK 1013",
		"pods?fieldSelector=metadata.name%3Db&":                                  "ADDED b 1004\nMODIFIED b 1007\nMODIFIED b 1008",
		"pods?labelSelector=none&":                                               "",
		"namespaces/other/pods?":                                                 "ADDED c 1005\nDELETED c 1009",
		"namespaces/none/pods?":                                                  "",
		"services?allowWatchBookmarks=1&":                                        "BOOKMARK 1005" + end + "\nBOOKMARK 1013",
		"nodes?":                                                                 "ADDED node 1001",
	} {
		events := watching(t, "/api/v1/"+query+"watch=true&timeoutSeconds=10", before, during)
		want(t, query, said(events), expect)
	}
}

// TestDeletedObject: what has left a selection is as it was in it, at the version of the change.
func TestDeletedObject(t *testing.T) {
	t.Parallel()
	events := watching(t, podsPath+"?watch=1&labelSelector=app%3Dx&timeoutSeconds=1",
		func(m *machine) { m.set(mirror.Pods, pod("default", "a", labelled("app", "x"))) },
		func(m *machine) { m.set(mirror.Pods, pod("default", "a", labelled("app", "y"))) })
	var old v1.Pod
	must(t, json.Unmarshal(events[1].Object, &old))
	want(t, "label", fmt.Sprintf("%s %s %s %s %s", events[1].Type, old.Kind, old.APIVersion, old.Labels["app"], old.ResourceVersion), "DELETED Pod v1 x 1004")
}

// TestBookmarks: clients that want it learn of versions, also of changes that they do not see.
func TestBookmarks(t *testing.T) {
	t.Parallel()
	events := watching(t, podsPath+"?watch=1&resourceVersion=1002&allowWatchBookmarks=true&timeoutSeconds=150", nil, func(m *machine) {
		m.set(mirror.Services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		time.Sleep(90 * time.Second)
		m.set(mirror.Pods, pod("default", "a"))
		time.Sleep(20 * time.Second)
		m.set(mirror.Services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "t"}})
	})
	want(t, "events", said(events), "BOOKMARK 1003\nADDED a 1004\nBOOKMARK 1005\nBOOKMARK 1005")
	o := decoded[metav1.TypeMeta](t, answer{body: string(events[0].Object)})
	want(t, "kind", o.Kind, "Pod")
}

// TestWatchTime: a watch takes as long as the client says, or half an hour to an hour.
func TestWatchTime(t *testing.T) {
	t.Parallel()
	for query, bounds := range map[string][2]time.Duration{
		"timeoutSeconds=7":                   {7 * time.Second, 7 * time.Second},
		"timeoutSeconds=0":                   {30 * time.Minute, time.Hour},
		"":                                   {30 * time.Minute, time.Hour},
		"timeoutSeconds=9000000000":          {9000000000 * time.Second, 9000000000 * time.Second},
		"timeoutSeconds=9223372036854775807": {0x7fffffffffffffff / time.Second * time.Second, 0x7fffffffffffffff / time.Second * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, ended := newMachine(), make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer close(ended)
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, podsPath+"?watch=1&"+query, nil)
				m.handler.ServeHTTP(httptest.NewRecorder(), r)
			}()
			begun := time.Now()
			if bounds[0] > time.Hour { // a ticker would take long until then, also in a bubble
				time.Sleep(time.Hour + time.Second)
				select {
				case <-ended:
					t.Errorf("%s: it ended after %s", query, time.Since(begun))
				default:
				}
				cancel()
			}
			<-ended
			if took := time.Since(begun); bounds[0] <= time.Hour && (took < bounds[0] || took > bounds[1]) {
				t.Errorf("%s: it took %s", query, took)
			}
			cancel()
		})
	}
}

// TestExpired: who asks for what is no longer known is told to list again, at once or in the middle of a watch.
func TestExpired(t *testing.T) {
	t.Parallel()
	m := newMachine()
	s := failed(t, "before", m.get(t, podsPath+"?watch=1&resourceVersion=1"), http.StatusGone, "too old resource version: 1 (1002)")
	want(t, "reason", s.Reason, metav1.StatusReasonExpired)
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		slow := &slowClient{ResponseRecorder: httptest.NewRecorder(), next: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.handler.ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", nil))
		}()
		synctest.Wait()
		m.set(mirror.Pods, pod("default", "a"))
		synctest.Wait() // the client does not read that
		m.age()
		close(slow.next)
		<-ended
		lines := strings.Split(strings.TrimSpace(slow.Body.String()), "\n")
		var last event
		must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
		want(t, "events", len(lines), 2)
		want(t, "the last one", last.String(), "ERROR 410 too old resource version: 1003 (5003)")
		var status metav1.Status
		must(t, json.Unmarshal(last.Object, &status))
		want(t, "expired", apierrors.IsResourceExpired(&apierrors.StatusError{ErrStatus: status}), true)
	})
}

// slowClient reads nothing until next is closed.
type slowClient struct {
	*httptest.ResponseRecorder
	next chan struct{}
}

func (c *slowClient) Write(data []byte) (int, error) {
	<-c.next
	return c.ResponseRecorder.Write(data)
}

// TestWatchTables: the first event has the columns, and a bookmark is known by its annotation.
func TestWatchTables(t *testing.T) {
	t.Parallel()
	const query = podsPath + "?watch=1&timeoutSeconds=1&allowWatchBookmarks=1&includeObject="
	for _, include := range []string{"", "None", "Object"} {
		events := watching(t, query+include,
			func(m *machine) { m.set(mirror.Pods, pod("default", "a")) },
			func(m *machine) { m.set(mirror.Pods, pod("default", "a", labelled("x", "y"))) },
			"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		want(t, "events", len(events), 4) // with two bookmarks
		for i, e := range events {
			table := decoded[metav1.Table](t, answer{body: string(e.Object)})
			want(t, "columns", len(table.ColumnDefinitions) > 0, i == 0)
			want(t, "rows", len(table.Rows), 1)
			want(t, "version", table.ResourceVersion, []string{"1003", "1003", "1004", "1004"}[i])
			o := decoded[metav1.PartialObjectMetadata](t, answer{body: string(table.Rows[0].Object.Raw) + strings.Repeat("{}", 1-min(1, len(table.Rows[0].Object.Raw)))})
			want(t, "the end of the state", o.Annotations[metav1.InitialEventsAnnotationKey] == "true", i == 1)
		}
	}
}

// TestWatchRefused: what cannot be watched, or not in this form.
func TestWatchRefused(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"))
	const streamed = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	if a := m.get(t, podsPath+"?watch=1", "Accept", "application/yaml"); a.code != http.StatusNotAcceptable || !strings.Contains(strings.Join(strings.Fields(a.body), " "), streamed) {
		t.Errorf("YAML: %d %s", a.code, a.body)
	}
	failed(t, "metrics", m.get(t, "/apis/metrics.k8s.io/v1beta1/pods?watch=1"), http.StatusMethodNotAllowed, `watch is not supported on resources of kind "pods.metrics.k8s.io"`)
	failed(t, "field", m.get(t, podsPath+"?watch=1&fieldSelector=x%3Dy"), http.StatusBadRequest, "field label not supported: x")
	failed(t, "match", m.get(t, podsPath+"?watch=1&sendInitialEvents=true"), http.StatusUnprocessableEntity,
		`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan`)
	failed(t, "a list", m.get(t, podsPath+"?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"), http.StatusUnprocessableEntity,
		`ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list`)

	// As in the API server, one object is watched by a list with a field selector.
	want(t, "one object", decoded[v1.Pod](t, m.get(t, podsPath+"/a?watch=1")).Name, "a")
	events := watching(t, podsPath+"?watch=1&timeoutSeconds=1", func(m *machine) { m.set(mirror.Pods, pod("default", "a")) }, nil, "Accept", "application/yaml, application/json")
	want(t, "the next type", said(events), "ADDED a 1003")
}

// TestWatchClients: client libraries understand the events, in each encoding.
func TestWatchClients(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"), pod("default", "b"))
	config, _ := m.serve(t)
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	anything, err := dynamic.NewForConfig(config)
	must(t, err)
	metadatas, err := metadata.NewForConfig(config)
	must(t, err)
	o := metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: m.version()}
	watches := map[string]func() (watch.Interface, error){
		"dynamic":  func() (watch.Interface, error) { return anything.Resource(pods).Watch(t.Context(), o) },
		"metadata": func() (watch.Interface, error) { return metadatas.Resource(pods).Watch(t.Context(), o) },
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config.ContentType = contentType
		c := clientOf(t, config)
		watches[contentType] = func() (watch.Interface, error) { return c.CoreV1().Pods("default").Watch(t.Context(), o) }
	}
	all := map[string]watch.Interface{}
	for name, begin := range watches {
		w, err := begin()
		must(t, err)
		defer w.Stop()
		all[name] = w
	}
	m.set(mirror.Pods, pod("default", "b", labelled("x", "y")), pod("default", "a", labelled("x", "y")))
	m.delete("default", "a")
	for name, w := range all {
		for _, kind := range []watch.EventType{watch.Modified, watch.Deleted} {
			e := <-w.ResultChan()
			o, ok := e.Object.(metav1.Object)
			if !ok || e.Type != kind || o.GetName() != "a" || o.GetLabels()["x"] != "y" {
				t.Errorf("%s: %+v, want %s", name, e, kind)
			}
		}
	}
}

// TestUntil: what waits for a condition, as "kubectl wait" does, survives connections that break.
func TestUntil(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "a"))
	config, server := m.serve(t)
	c := clientOf(t, config)
	lw := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", "default", fields.OneTermEqualSelector("metadata.name", "a"))
	steps := 0
	_, err := toolswatch.Until(t.Context(), "1002", lw, func(e watch.Event) (bool, error) {
		steps++
		pod, ok := e.Object.(*v1.Pod)
		if !ok {
			return false, fmt.Errorf("%+v", e)
		}
		if pod.Labels["step"] == "2" {
			return true, nil
		}
		m.set(mirror.Pods, labelledCopy(pod, "step", fmt.Sprint(steps)))
		go server.CloseClientConnections()
		return false, nil
	})
	must(t, err)
	want(t, "steps", steps, 3)
}

func labelledCopy(p *v1.Pod, name, value string) *v1.Pod {
	p = p.DeepCopy()
	labelled(name, value)(p)
	return p
}

// TestProtobufFrames: a watch in protobuf says so.
func TestProtobufFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.set(mirror.Pods, pod("default", "a"))
		a := m.get(t, podsPath+"?watch=1&timeoutSeconds=1", "Accept", "application/vnd.kubernetes.protobuf;stream=watch")
		want(t, "type", a.header.Get("Content-Type"), "application/vnd.kubernetes.protobuf;stream=watch")
		if !bytes.Contains([]byte(a.body), []byte("k8s\x00")) {
			t.Errorf("%q", a.body)
		}
	})
}
