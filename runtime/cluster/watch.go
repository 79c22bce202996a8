package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/runonce/runonce/internal/failure"
)

const (
	// syncTimeout bounds the first list of the pods.
	syncTimeout = 30 * time.Second
	// deniedFor is how long the server may refuse the user: while it starts, it does not know
	// everybody yet.
	deniedFor = 10 * time.Second
	// lostFor is how long the pods may not be seen: a server is restarted within that time.
	lostFor = 5 * time.Minute
	// unseenAfter is how old the status of the pods may be at the end of a run: longer than it takes a
	// kubelet to tell what has happened, and the server to tell it here.
	unseenAfter = 5 * time.Second
)

// follow keeps the cache up to date until ctx is done: with one watch, or with one for each
// namespace when the user may not see the pods of all. It returns when the cache has all pods
// that there are.
func (p *Pods) follow(ctx context.Context) error {
	namespaces := []string{""}
	if p.o.Only {
		namespaces = []string{p.o.Namespace}
	}
	err := p.c.list(ctx, namespaces[0], metav1.ListOptions{LabelSelector: labelManaged, Limit: 1}, &v1.PodList{})
	switch {
	case apierrors.IsForbidden(err) && !p.o.Only:
		namespaces = p.o.Namespaces()
		err := p.c.list(ctx, p.o.Namespace, metav1.ListOptions{LabelSelector: labelManaged, Limit: 1}, &v1.PodList{})
		if len(namespaces) == 0 || !apierrors.IsForbidden(err) && !slices.Contains(namespaces, p.o.Namespace) {
			namespaces = append(namespaces, p.o.Namespace)
		}
		p.seen = namespaces
		p.o.Log.InfoContext(ctx, "could not list the pods of all namespaces; using those of some", "namespaces", namespaces, "error", err)
	case err != nil:
		return fmt.Errorf("listing pods: %w", cause(err))
	}
	// Its messages would go to standard error: of what they say, this package logs what matters.
	ctx = logr.NewContext(ctx, logr.Discard())
	synced := make(chan error, len(namespaces))
	for _, namespace := range namespaces {
		f := &follower{p: p, namespace: namespace, synced: synced, heard: time.Now()}
		p.followers = append(p.followers, f)
		lw := &cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}
		r := cache.NewReflectorWithOptions(lw, &v1.Pod{}, f, cache.ReflectorOptions{Name: "pods", Logger: new(logr.Discard())})
		go r.RunWithContext(ctx)
	}
	timeout := time.After(syncTimeout)
	for range namespaces {
		select {
		case err := <-synced:
			if err != nil {
				return fmt.Errorf("listing pods: %w", cause(err))
			}
		case <-timeout:
			return errors.New("listing pods: no answer within " + syncTimeout.String())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// list lists pods.
func (c *client) list(ctx context.Context, namespace string, o metav1.ListOptions, into *v1.PodList) error {
	return c.rest.Get().Namespace(namespace).Resource("pods").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(into)
}

// follower is the source and the store of one watch.
type follower struct {
	p         *Pods
	namespace string
	synced    chan<- error // gets the first error, or nil with the first list

	mu    sync.Mutex
	told  bool      // about synced
	heard time.Time // when the server last said something
	since time.Time // when the watch was interrupted, zero if it is not
	// denied is since when the server refuses the user, zero if it does not.
	denied time.Time
}

// tell reports the first result.
func (f *follower) tell(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.told {
		f.told = true
		f.synced <- err
	}
}

// noteError logs when the watch is interrupted, and when it goes on. After a while without it the
// cluster is lost.
func (f *follower) noteError(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.heard = time.Now()
	}
	if ctx.Err() != nil || !f.told { // who waits for the first list gets its error
		return
	}
	switch {
	case err == nil || isTransient(err):
		f.denied = time.Time{}
	case f.denied.IsZero():
		f.denied = time.Now()
	}
	switch {
	case err == nil && !f.since.IsZero():
		f.p.o.Log.WarnContext(ctx, "watching the pods again", "server", f.p.c.server)
		f.since = time.Time{}
	case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err): // then it lists
	case f.since.IsZero():
		f.p.o.Log.WarnContext(ctx, "could not watch the pods; trying again", "server", f.p.c.server, "error", cause(err))
		f.since = time.Now()
	case time.Since(f.since) > lostFor, !f.denied.IsZero() && time.Since(f.denied) > deniedFor:
		f.p.lose(fmt.Errorf("the state of the pod is unknown since %s: API server %s: watching the pods: %w",
			f.since.Format(time.TimeOnly), f.p.c.server, cause(err)))
	}
}

// Refresh asks the server for all pods. Its error says why they are not known, and since when. One that
// does not answer for a moment only has told all that matters.
func (p *Pods) Refresh(ctx context.Context) (since time.Time, err error) {
	for _, f := range p.followers {
		at, ferr := f.refresh(ctx)
		if ferr != nil && (err == nil || at.Before(since)) {
			since, err = at, fmt.Errorf("API server %s: %w", p.c.server, ferr)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unseen = err
	return since, err
}

func (f *follower) refresh(ctx context.Context) (since time.Time, err error) {
	pods := &v1.PodList{}
	err = f.p.c.list(ctx, f.namespace, metav1.ListOptions{LabelSelector: labelManaged}, pods)
	if err == nil {
		all := make([]*v1.Pod, len(pods.Items))
		for i := range pods.Items {
			all[i] = &pods.Items[i]
		}
		f.p.cache.replace(f.namespace, pods.ResourceVersion, all)
		return time.Time{}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	since = f.heard
	if !f.since.IsZero() {
		since = f.since
	}
	switch {
	case time.Since(since) < unseenAfter:
		return time.Time{}, nil
	case ctx.Err() != nil:
		return since, errors.New("no answer")
	}
	return since, cause(err)
}

// lose ends all waiting for the cluster.
func (p *Pods) lose(err error) {
	p.mu.Lock()
	if p.lost == nil {
		p.lost = &failure.Error{Why: "ClusterLost", Final: true, Err: err}
	}
	p.mu.Unlock()
	p.cache.wakeAll()
}

// Lost returns why the cluster could not be used any more, nil if it could. The status of its pods
// is unknown then.
func (p *Pods) Lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Unseen returns why the last status of the pods is not known: the cluster is lost, or Refresh has
// failed. It is nil if the status is known.
func (p *Pods) Unseen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return p.lost
	}
	return p.unseen
}

func (f *follower) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector = labelManaged
	pods := &v1.PodList{}
	err := f.p.c.list(ctx, f.namespace, o, pods)
	f.noteError(ctx, err)
	if err != nil && !isTransient(err) {
		f.tell(err)
	}
	return pods, err
}

func (f *follower) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector, o.Watch = labelManaged, true
	w, err := f.p.c.rest.Get().Namespace(f.namespace).Resource("pods").VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	f.noteError(ctx, err)
	return w, err
}

// hear notes that the server has said something.
func (f *follower) hear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = time.Now()
}

// Add, Update, Delete, Replace and Resync are called by the reflector.
func (f *follower) Add(o any) error { return f.Update(o) }

// Update has a new state of a pod.
func (f *follower) Update(o any) error {
	f.hear()
	if pod, ok := o.(*v1.Pod); ok {
		f.p.cache.put(pod)
	}
	return nil
}

// Delete has the last state of a pod.
func (f *follower) Delete(o any) error {
	f.hear()
	if pod, ok := o.(*v1.Pod); ok {
		f.p.cache.remove(pod)
	}
	return nil
}

// Replace has all pods.
func (f *follower) Replace(all []any, version string) error {
	pods := make([]*v1.Pod, 0, len(all))
	for _, o := range all {
		if pod, ok := o.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	f.p.cache.replace(f.namespace, version, slices.Clip(pods))
	f.tell(nil)
	return nil
}

// Resync has nothing to do.
func (f *follower) Resync() error { return nil }
