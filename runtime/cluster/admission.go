package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// Refusal is why the cluster does not accept a pod.
type Refusal struct{ Reason, Message string }

// ObjectError says that the cluster does not accept an object of the input.
type ObjectError struct{ error }

// Admission is what the cluster says about an input before any of its pods is created.
type Admission struct {
	p       *Pods
	pods    []*v1.Pod
	objects []Object
	missing map[string]bool // namespaces that Prepare creates
	fresh   map[string]bool // objects that Prepare creates
	foreign map[string]bool // objects that somebody else has created
	later   []*v1.Pod       // that can only be judged when the objects are there

	mu       sync.Mutex
	refused  map[types.UID]Refusal
	accepted map[types.UID]*v1.Pod
	created  []Object
}

// Refused returns why pods are not accepted, by UID.
func (a *Admission) Refused() map[types.UID]Refusal { return a.refused }

// Accepted returns the pods that the server accepts, as it would create them: the admission plugins of a
// cluster may change where a pod can run.
func (a *Admission) Accepted() map[types.UID]*v1.Pod { return a.accepted }

func (a *Admission) refuse(pod *v1.Pod, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.refused[pod.UID]; !ok {
		a.refused[pod.UID] = Refusal{reason, message}
	}
}

// Judge has the API server judge the objects and pods of an input by a dry run, with everything
// that it does at a creation: validation, quota, Pod Security, webhooks. It creates nothing. Pods
// in a namespace that does not exist are refused unless createNamespaces is set. An error is an
// ObjectError, or means that the server cannot be asked.
func (p *Pods) Judge(ctx context.Context, pods []*v1.Pod, objects []Object, createNamespaces bool) (*Admission, error) {
	a := &Admission{
		p: p, pods: pods, objects: objects,
		missing: map[string]bool{}, fresh: map[string]bool{}, foreign: map[string]bool{},
		refused: map[types.UID]Refusal{}, accepted: map[types.UID]*v1.Pod{},
	}
	if err := a.checkNamespaces(ctx, createNamespaces); err != nil {
		return nil, err
	}
	for _, o := range objects {
		if a.missing[o.GetNamespace()] {
			continue
		}
		created, err := a.apply(ctx, o, true)
		if err != nil {
			return nil, err
		}
		if created {
			a.fresh[describe(o)] = true
		}
	}
	var now []*v1.Pod
	for _, pod := range pods {
		if a.dependsOnInput(pod) {
			a.later = append(a.later, pod)
		} else {
			now = append(now, pod)
		}
	}
	return a, a.judge(ctx, now)
}

// Prepare creates the namespaces and applies the objects, and then has the server judge the pods
// for which that was necessary.
func (a *Admission) Prepare(ctx context.Context) error {
	for name := range a.missing {
		if slices.ContainsFunc(a.objects, func(o Object) bool { return describe(o) == "Namespace "+name }) {
			continue
		}
		if err := a.p.createNamespace(ctx, name); err != nil {
			a.refuseIn(name, string(apierrors.ReasonForError(err)), words(err))
		}
	}
	for _, o := range a.objects {
		created, err := a.apply(ctx, o, false)
		if err != nil {
			return err
		}
		if created {
			a.created = append(a.created, o)
		}
		if name := o.GetName(); created && describe(o) == "Namespace "+name {
			if err := a.p.awaitAccount(ctx, name); err != nil {
				return err
			}
		}
	}
	return a.judge(ctx, a.later)
}

// checkNamespaces finds the namespaces that do not exist.
func (a *Admission) checkNamespaces(ctx context.Context, create bool) error {
	names, ours := map[string]bool{}, map[string]bool{}
	for _, pod := range a.pods {
		names[pod.Namespace] = true
	}
	for _, o := range a.objects {
		if o.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
			ours[o.GetName()] = true
		} else if o.GetNamespace() != "" {
			names[o.GetNamespace()] = true
		}
	}
	for name := range names {
		err := retry(ctx, func() error { return a.p.c.rest.Get().Resource("namespaces").Name(name).Do(ctx).Error() })
		switch {
		case err == nil || apierrors.IsForbidden(err): // then the pods will tell
		case !apierrors.IsNotFound(err):
			return a.p.c.unusable(err)
		case create || ours[name]:
			a.missing[name] = true
		default:
			a.refuseIn(name, string(apierrors.ReasonForError(err)), words(err)+": create it, or use --create-namespace")
		}
	}
	return nil
}

// unusable is the error of a server that gives no answer that is about the input.
func (c *client) unusable(err error) error {
	return fmt.Errorf("API server %s: %w", c.server, cause(err))
}

// refuseIn refuses the pods of a namespace, all of them if it is "". It says whether there is one.
func (a *Admission) refuseIn(namespace, reason, message string) bool {
	refused := false
	for _, pod := range a.pods {
		if namespace == "" || pod.Namespace == namespace {
			a.refuse(pod, reason, message)
			refused = true
		}
	}
	return refused
}

// apply applies an object. When the server refuses it, the pods of its namespace are refused: they
// may need it. Without such a pod it is an error.
func (a *Admission) apply(ctx context.Context, o Object, dryRun bool) (created bool, err error) {
	err = retry(ctx, func() (err error) {
		if dryRun {
			if a.foreign[describe(o)], err = a.p.c.isForeign(ctx, o); err != nil {
				return err
			}
		}
		created, err = a.p.c.apply(ctx, o, !a.foreign[describe(o)], dryRun)
		return err
	})
	if err == nil {
		return created, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false, a.p.c.unusable(err)
	}
	namespace := o.GetNamespace()
	if o.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
		namespace = o.GetName()
	}
	message := describe(o) + ": " + words(err)
	if !a.refuseIn(namespace, string(apierrors.ReasonForError(err)), message) {
		return false, ObjectError{errors.New(message)}
	}
	return false, nil
}

// dependsOnInput reports whether the server cannot judge a pod before objects of the input are
// there.
func (a *Admission) dependsOnInput(pod *v1.Pod) bool {
	class := ""
	if pod.Spec.RuntimeClassName != nil {
		class = *pod.Spec.RuntimeClassName
	}
	return a.missing[pod.Namespace] || a.fresh["ServiceAccount "+pod.Namespace+"/"+pod.Spec.ServiceAccountName] ||
		a.fresh["PriorityClass "+pod.Spec.PriorityClassName] || a.fresh["RuntimeClass "+class]
}

// judge has the server judge pods.
func (a *Admission) judge(ctx context.Context, pods []*v1.Pod) error {
	errs, seen := make([]error, len(pods)), make([]*v1.Pod, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		if _, refused := a.refused[pod.UID]; refused {
			continue
		}
		wg.Go(func() {
			errs[i] = retry(ctx, func() error {
				seen[i] = &v1.Pod{}
				return a.p.c.limited(ctx, func() error { return a.p.c.create(ctx, a.rehearsed(pod), true, seen[i]) })
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		var status apierrors.APIStatus
		switch {
		case err == nil && seen[i] != nil:
			a.accepted[pods[i].UID] = seen[i]
		case err == nil: // refused before
		case isQuota(err) && a.replaces(pods[i]): // the quota still counts the one that is replaced
		case apierrors.IsAlreadyExists(err) && a.p.adopt(ctx, pods[i]) == nil: // another run has just created it
		case apierrors.IsAlreadyExists(err):
			a.refuse(pods[i], string(apierrors.ReasonForError(err)), words(err)+": it was not created by runonce; delete it or rename this one")
		case errors.As(err, &status):
			a.refuse(pods[i], string(apierrors.ReasonForError(err)), words(err))
		default:
			return a.p.c.unusable(err)
		}
	}
	return nil
}

// rehearsed returns the pod for a dry run: under another name when one of ours is there, which
// would be replaced.
func (a *Admission) rehearsed(pod *v1.Pod) *v1.Pod {
	c := forCluster(pod)
	if a.replaces(pod) {
		c.Name, c.GenerateName = "", pod.Name+"-"
	}
	return c
}

// replaces reports whether the pod takes the place of one of ours.
func (a *Admission) replaces(pod *v1.Pod) bool {
	there, _ := a.p.cache.get(podspec.NameOf(pod))
	return there != nil
}

// Nodes returns the nodes of the cluster, none if the user may not see them.
func (p *Pods) Nodes(ctx context.Context) ([]*v1.Node, error) {
	list := &v1.NodeList{}
	err := retry(ctx, func() error { return p.c.rest.Get().Resource("nodes").Do(ctx).Into(list) })
	if apierrors.IsForbidden(err) {
		p.o.Log.InfoContext(ctx, "could not list the nodes", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, p.c.unusable(err)
	}
	nodes := make([]*v1.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return nodes, nil
}

// PodsOfNodes returns the pods of all users that have not ended, by node; none if the user may not
// see them.
func (p *Pods) PodsOfNodes(ctx context.Context) (map[string][]*v1.Pod, error) {
	list := &v1.PodList{}
	err := retry(ctx, func() error {
		return p.c.list(ctx, "", metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}, list)
	})
	of := map[string][]*v1.Pod{}
	if apierrors.IsForbidden(err) {
		return of, nil
	}
	if err != nil {
		return nil, p.c.unusable(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		of[pod.Spec.NodeName] = append(of[pod.Spec.NodeName], pod)
	}
	return of, nil
}
