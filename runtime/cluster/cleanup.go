package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// removable are the kinds of objects that are removed with the pods. Claims and volumes have data,
// and namespaces and what belongs to no namespace may be used by others.
var removable = []string{"Service", "ConfigMap", "Secret", "ServiceAccount"}

// Undo removes the objects that Prepare has created, except for those that may have data or be
// used by others.
func (a *Admission) Undo(ctx context.Context) error {
	errs := make([]error, 0, len(a.created))
	for _, o := range slices.Backward(a.created) {
		if slices.Contains(removable, o.GetObjectKind().GroupVersionKind().Kind) {
			errs = append(errs, a.p.removeObject(ctx, o))
		}
	}
	return errors.Join(errs...)
}

// RemoveObjects removes the objects of earlier runs whose annotations are selected, except for those
// that may have data or be used by others. It looks in the given namespaces if the user may not
// look in all. It returns what it has removed.
func (p *Pods) RemoveObjects(ctx context.Context, namespaces func() []string, selected func(metav1.Object) bool) (removed []string, err error) {
	var errs []error
	for _, kind := range removable {
		objects, err := p.objects(ctx, kind, namespaces)
		errs = append(errs, err)
		for _, o := range objects {
			if !selected(o) {
				continue
			}
			if err := p.removeObject(ctx, o); err != nil {
				errs = append(errs, err)
				continue
			}
			removed = append(removed, describe(o))
		}
	}
	return removed, errors.Join(errs...)
}

// objects returns the objects of a kind that this program has created. Where the user may not list them,
// there is none that a run of this user's has needed.
func (p *Pods) objects(ctx context.Context, kind string, namespaces func() []string) ([]Object, error) {
	all, err := p.objectsIn(ctx, kind, "")
	if !apierrors.IsForbidden(err) {
		return all, err
	}
	for _, namespace := range namespaces() {
		some, err := p.objectsIn(ctx, kind, namespace)
		switch {
		case apierrors.IsForbidden(err):
			p.o.Log.InfoContext(ctx, "could not list the objects of a kind", "kind", kind, "namespace", namespace, "error", err)
		case err != nil:
			return all, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (p *Pods) objectsIn(ctx context.Context, kind, namespace string) ([]Object, error) {
	plural, _ := meta.UnsafeGuessKindToResource(v1.SchemeGroupVersion.WithKind(kind))
	var list runtime.Object
	err := retry(ctx, func() (err error) {
		list, err = p.c.rest.Get().AbsPath(collectionPath(plural, namespace)).Param("labelSelector", labelManaged).Do(ctx).Get()
		return err
	})
	if err != nil {
		return nil, requestError("listing objects of kind "+kind, err)
	}
	var objects []Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(Object)
		if !ok {
			return fmt.Errorf("listing objects of kind %s: got %T", kind, item)
		}
		item.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(kind))
		objects = append(objects, o)
		return nil
	})
	return objects, err
}

func (p *Pods) removeObject(ctx context.Context, o Object) error {
	err := retry(ctx, func() error { return p.c.rest.Delete().AbsPath(objectPath(o)).Do(ctx).Error() })
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return requestError("removing "+describe(o), err)
}
