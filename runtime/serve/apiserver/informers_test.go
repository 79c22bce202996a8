package apiserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// history has each version of each object that there ever was.
type history struct {
	mu  sync.Mutex
	all map[string]string // what an object said, by its name and version
}

func (h *history) key(o metav1.Object) string {
	return podspec.NameOf(o).String() + " " + o.GetResourceVersion()
}

// text is what an object says, but for its version.
func text(o metav1.Object) string { return fmt.Sprint(o.GetUID(), o.GetLabels()) }

func (h *history) add(o metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[h.key(o)] = text(o)
}

func (h *history) has(o metav1.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[h.key(o)] == text(o)
}

// replica follows an informer by the calls of its handler, and checks them against what it knows.
type replica struct {
	t        *testing.T
	name     string
	history  *history
	informer cache.SharedIndexInformer
	selects  func(metav1.Object) bool

	mu    sync.Mutex
	known map[types.NamespacedName]metav1.Object
	calls int
}

func (r *replica) call(kind string, o any, before any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	now, ok := o.(metav1.Object)
	if !ok {
		r.t.Errorf("%s: %s %T", r.name, kind, o)
		return
	}
	name := podspec.NameOf(now)
	old, exists := r.known[name]
	if !r.selects(now) {
		r.t.Errorf("%s: %s of %s, which it did not ask for", r.name, kind, r.history.key(now))
	}
	if exists == (kind == "add") {
		r.t.Errorf("%s: %s of %s, exists %t", r.name, kind, name, exists)
	}
	if kind != "delete" && !r.history.has(now) {
		r.t.Errorf("%s: %s of %s, which never was so: %s", r.name, kind, r.history.key(now), text(now))
	}
	switch kind {
	case "update":
		b, ok := before.(metav1.Object)
		if !ok || exists && r.history.key(b) != r.history.key(old) {
			r.t.Errorf("%s: update of %s from %v, not %s", r.name, r.history.key(now), before, r.history.key(old))
		}
		// A client that lists again is told of what it has, too, as with a resync.
		if exists && (versionOf(r.t, now) < versionOf(r.t, old) || versionOf(r.t, now) == versionOf(r.t, old) && text(now) != text(old)) {
			r.t.Errorf("%s: update to %s from %s", r.name, r.history.key(now), r.history.key(old))
		}
		r.known[name] = now
	case "add":
		r.known[name] = now
	default:
		delete(r.known, name)
	}
}

func versionOf(t *testing.T, o metav1.Object) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return version
}

func newReplica(t *testing.T, name string, h *history, informer cache.SharedIndexInformer, selects func(metav1.Object) bool) *replica {
	r := &replica{t: t, name: name, history: h, informer: informer, selects: selects, known: map[types.NamespacedName]metav1.Object{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.call("add", o, nil) },
		UpdateFunc: func(old, o any) { r.call("update", o, old) },
		DeleteFunc: func(o any) { r.call("delete", o, nil) },
	})
	must(t, err)
	return r
}

// check compares what the informer has, and what its calls said, with what there is.
func (r *replica) check(store *objects.Store) {
	all, _, err := store.List(mirror.Pods, 0)
	must(r.t, err)
	there, said, cached := map[string]string{}, map[string]string{}, map[string]string{}
	for _, o := range all {
		if r.selects(o) {
			there[r.history.key(o)] = text(o)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.known {
		said[r.history.key(o)] = text(o)
	}
	for _, one := range r.informer.GetStore().List() {
		if o, ok := one.(metav1.Object); ok {
			cached[r.history.key(o)] = text(o)
		}
	}
	if diff := cmp.Diff(there, cached); diff != "" {
		r.t.Errorf("%s: what there is (-) and what the informer has (+):\n%s", r.name, diff)
	}
	if diff := cmp.Diff(there, said); diff != "" {
		r.t.Errorf("%s: what there is (-) and what its handler was told (+):\n%s", r.name, diff)
	}
	if r.calls == 0 {
		r.t.Errorf("%s: nothing happened", r.name)
	}
}

// world changes at random.
type world struct {
	*machine
	*pipes
	*rand.Rand
	history *history
}

// put sets a pod, with a version that it has for the first time.
func (w *world) put(p *v1.Pod) {
	// The history must know it before anybody is told: the version is the next one, or the one after a deletion.
	before, existed := w.store.Load().Get(mirror.Pods, podspec.NameOf(p))
	version := w.store.Load().Version() + 1
	if existed && before.GetUID() != p.UID {
		version++
	}
	known := p.DeepCopy()
	known.ResourceVersion = fmt.Sprint(version)
	w.history.add(known)
	w.set(mirror.Pods, p)
	if p.ResourceVersion != known.ResourceVersion {
		panic("version " + p.ResourceVersion + ", want " + known.ResourceVersion)
	}
}

// restart replaces the server by a new one, with another store of the same objects.
func (w *world) restart() {
	old := w.store.Load()
	all, version, err := old.List(mirror.Pods, 0)
	if err != nil {
		panic(err)
	}
	w.machine = newMachine()
	w.store.Store(objects.New(version + 10000))
	for _, o := range all {
		if p, ok := o.(*v1.Pod); ok {
			w.put(p.DeepCopy())
		}
	}
	w.pipes.handler.Store(&w.machine.handler)
	w.drop()
}

// step has something happen.
func (w *world) step(i int) {
	namespace, name := []string{"a", "b"}[w.IntN(2)], fmt.Sprintf("p%d", w.IntN(12))
	switch n := w.IntN(100); {
	case n < 60:
		w.put(pod(namespace, name, labelled("app", []string{"x", "y"}[w.IntN(2)]), labelled("i", fmt.Sprint(i))))
	case n < 65:
		w.put(pod(namespace, name, labelled("i", fmt.Sprint(i)), func(p *v1.Pod) { p.UID = types.UID(fmt.Sprint("uid-", i)) }))
	case n < 85:
		w.machine.delete(namespace, name)
	case n < 90:
		w.drop()
	case n < 91:
		if w.IntN(2) == 0 {
			w.drop()
		}
		w.age() // those who watch are behind, unless they are quick
	case n < 94:
		w.restart()
	default:
		time.Sleep(time.Duration(w.IntN(5000)) * time.Millisecond)
	}
	if w.IntN(3) == 0 {
		synctest.Wait() // all have seen it
	}
}

// TestInformers: whatever happens, the caches of clients become what there is, and what they are told on the way is true.
func TestInformers(t *testing.T) {
	// They log errors, and sleep so as not to log too many, by the time of the last one: that was in another bubble, maybe
	// 26 years later.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	for _, watchList := range []bool{false, true} {
		t.Run(fmt.Sprintf("WatchList=%t", watchList), func(t *testing.T) {
			featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			for seed := range uint64(4) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						lists := follow(t, seed)
						want(t, "lists as streams", lists > 0, watchList)
					})
				})
			}
		})
	}
}

// follow has informers follow a random world, and returns how many lists they have read as streams.
func follow(t *testing.T, seed uint64) (streamed int64) {
	m := newMachine()
	p, config := servePipes(t, m.handler)
	w := &world{machine: m, pipes: p, Rand: rand.New(rand.NewPCG(seed, 1)), history: &history{all: map[string]string{}}}
	for i := range 10 {
		w.put(pod("a", fmt.Sprintf("p%d", i), labelled("app", "x"), labelled("i", "first")))
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	metadatas, err := metadata.NewForConfig(config)
	must(t, err)
	inX := func(o *metav1.ListOptions) { o.LabelSelector = "app=x" }
	all := informers.NewSharedInformerFactory(c, 0)
	one := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace("a"))
	selected := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(inX))
	metas := metadatainformer.NewFilteredSharedInformerFactory(metadatas, 0, "b", inX)
	isX := func(o metav1.Object) bool { return o.GetLabels()["app"] == "x" }
	replicas := []*replica{
		newReplica(t, "all", w.history, all.Core().V1().Pods().Informer(), func(metav1.Object) bool { return true }),
		newReplica(t, "namespace", w.history, one.Core().V1().Pods().Informer(), func(o metav1.Object) bool { return o.GetNamespace() == "a" }),
		newReplica(t, "label", w.history, selected.Core().V1().Pods().Informer(), isX),
		newReplica(t, "metadata", w.history, metas.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Informer(), func(o metav1.Object) bool {
			return o.GetNamespace() == "b" && isX(o)
		}),
	}
	for _, f := range []interface{ Start(<-chan struct{}) }{all, one, selected, metas} {
		f.Start(ctx.Done())
	}
	for i := range 200 {
		w.step(i)
	}
	time.Sleep(10 * time.Minute) // longer than clients wait before they try again
	for _, r := range replicas {
		r.check(w.store.Load())
	}
	cancel()
	all.Shutdown()
	one.Shutdown()
	selected.Shutdown()
	metas.Shutdown()
	return p.streamed.Load()
}
