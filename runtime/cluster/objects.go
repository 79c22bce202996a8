package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runonce/runonce/internal/podspec"
)

const (
	// accountTimeout bounds the wait for the default service account of a new namespace, which a
	// controller creates.
	accountTimeout  = 30 * time.Second
	accountInterval = 100 * time.Millisecond
	// metadataOnly is the content type of an object's metadata.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// Object is an object of the input that is not a pod.
type Object = podspec.Object

// describe returns "Kind namespace/name".
func describe(o Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

// objectPath returns the path of an object in the API.
func objectPath(o Object) string {
	gvk := o.GetObjectKind().GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return collectionPath(plural, o.GetNamespace()) + "/" + o.GetName()
}

// collectionPath returns the path of all objects of a kind, in one namespace unless it is "".
func collectionPath(r schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + r.GroupVersion().String()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Resource
}

// isForeign reports whether there is such an object that somebody else has created.
func (c *client) isForeign(ctx context.Context, o Object) (bool, error) {
	var there metav1.PartialObjectMetadata
	var text []byte
	err := c.limited(ctx, func() (err error) {
		text, err = c.rest.Get().AbsPath(objectPath(o)).SetHeader("Accept", metadataOnly).Do(ctx).Raw()
		return err
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // who may not look at it may create it nevertheless
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &there)
	}
	return there.Labels[labelManaged] == "", err
}

// apply creates or changes an object so that the fields which it sets are as in the input
// (server-side apply). One that is ours is marked so. It says whether the object was created, or would be.
func (c *client) apply(ctx context.Context, o Object, ours, dryRun bool) (created bool, err error) {
	body, err := applied(o, ours)
	if err != nil {
		return false, err
	}
	r := c.rest.Patch(types.ApplyPatchType).AbsPath(objectPath(o)).
		Param("fieldManager", fieldManager).Param("fieldValidation", metav1.FieldValidationStrict).Body(body)
	if dryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	code := 0
	err = c.limited(ctx, func() error { return r.Do(ctx).StatusCode(&code).Error() })
	return code == http.StatusCreated, err
}

// applied returns what is sent of an object: what the input has, with our label and annotations if it is
// ours.
func applied(o Object, ours bool) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", describe(o), err)
	}
	delete(fields, "status")
	labels, annotations := map[string]string{}, maps.Clone(o.GetAnnotations())
	if ours {
		labels[labelManaged] = "true"
	} else {
		delete(annotations, podspec.AnnotationPath)
		delete(annotations, podspec.AnnotationSource)
	}
	maps.Copy(labels, o.GetLabels())
	metadata := map[string]any{"name": o.GetName(), "labels": labels}
	if o.GetNamespace() != "" {
		metadata["namespace"] = o.GetNamespace()
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	fields["metadata"] = metadata
	return json.Marshal(fields)
}

// retry calls a function until it succeeds or its error is not transient, for as long as a server may be
// away.
func retry(ctx context.Context, f func() error) error {
	begin := time.Now()
	for wait := accountInterval; ; wait = min(2*wait, goneInterval) {
		err := f()
		if err == nil || !isTransient(err) || time.Since(begin) > lostFor {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// createNamespace creates a namespace unless it exists, and waits until pods can be created in it.
func (p *Pods) createNamespace(ctx context.Context, name string) error {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelManaged: "true"}}}
	err := retry(ctx, func() error {
		return p.c.rest.Post().Resource("namespaces").VersionedParams(&metav1.CreateOptions{FieldManager: fieldManager}, metav1.ParameterCodec).Body(ns).Do(ctx).Error()
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return p.awaitAccount(ctx, name)
}

// awaitAccount waits for the default service account of a namespace.
func (p *Pods) awaitAccount(ctx context.Context, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, accountInterval, accountTimeout, true, func(ctx context.Context) (bool, error) {
		err := p.c.rest.Get().Namespace(namespace).Resource("serviceaccounts").Name("default").Do(ctx).Error()
		// Who may not look at it may create pods nevertheless.
		return err == nil || !apierrors.IsNotFound(err) && !isTransient(err), nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the namespace %q has no service account after %s", namespace, accountTimeout)
	}
	return nil
}
