package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/apiserver/tables"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// The fields by which every object may be selected.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// futureTimeout is how long a version is waited for that this server does not know yet, as in the API server's cache.
const futureTimeout = 3 * time.Second

// query is what of a collection is asked for.
type query struct {
	request
	internalversion.ListOptions
	include metav1.IncludeObjectPolicy
	version uint64 // 0 for the present one
}

// parseQuery reads the parameters of a request for a collection, or for one object.
func (s *server) parseQuery(q request, values url.Values) (query, error) {
	of := query{request: q}
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &of.ListOptions); err != nil {
		return of, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&of.ListOptions, true)
	if problems := validation.ValidateListOptions(&of.ListOptions, true); len(problems) > 0 {
		return of, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", problems)
	}
	switch of.include = metav1.IncludeObjectPolicy(values.Get("includeObject")); of.include {
	case "":
		of.include = metav1.IncludeMetadata
	case metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
	default:
		problem := field.Invalid(field.NewPath("includeObject"), of.include, "must be 'Metadata', 'Object', 'None', or empty")
		return of, apierrors.NewBadRequest("Unable to convert to Table as requested: " + problem.Error())
	}
	if of.ResourceVersion != "" {
		version, err := strconv.ParseUint(of.ResourceVersion, 10, 64)
		if err != nil {
			return of, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
		}
		of.version = version
	}
	return of, s.checkFields(&of)
}

// checkFields refuses a selection by fields that the kind does not have.
func (s *server) checkFields(of *query) error {
	if of.LabelSelector == nil {
		of.LabelSelector = labels.Everything()
	}
	if of.FieldSelector == nil {
		of.FieldSelector = fields.Everything()
	}
	known := fields.Set{}
	if zero, err := s.codecs.scheme.New(of.resource.kind()); err == nil {
		if o, ok := zero.(objects.Object); ok {
			known = of.resource.fieldsOf(o)
		}
	}
	for _, r := range of.FieldSelector.Requirements() {
		if !known.Has(r.Field) {
			return apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return nil
}

// fieldsOf returns the fields by which the object may be selected.
func (r *resource) fieldsOf(o objects.Object) fields.Set {
	set := fields.Set{}
	if r.fields != nil {
		set = r.fields(o)
	}
	set[fieldName] = o.GetName()
	if r.Namespaced {
		set[fieldNamespace] = o.GetNamespace()
	}
	return set
}

// selects says whether the object, which may be nil, is one that is asked for.
func (q *query) selects(o objects.Object) bool {
	return o != nil && (q.namespace == "" || o.GetNamespace() == q.namespace) &&
		q.LabelSelector.Matches(labels.Set(o.GetLabels())) && (q.FieldSelector.Empty() || q.FieldSelector.Matches(q.resource.fieldsOf(o)))
}

func (s *server) listOrWatch(w http.ResponseWriter, r *http.Request, q request) {
	of, err := s.parseQuery(q, r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if of.Watch {
		s.watch(w, r, of)
		return
	}
	s.list(w, r, of)
}

// list answers with a collection.
func (s *server) list(w http.ResponseWriter, r *http.Request, q query) {
	f, err := s.codecs.accepted(r, true)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	all, list, err := s.collect(r.Context(), q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusOK, s.collection(q, f.as, all, list))
}

// collect returns the objects that are asked for, and what there is to say of them all.
func (s *server) collect(ctx context.Context, q query) ([]objects.Object, metav1.ListMeta, error) {
	start := types.NamespacedName{}
	if q.Continue != "" {
		token, err := s.decodeContinue(q.Continue)
		if err == nil && q.version != 0 {
			err = apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if err != nil {
			return nil, metav1.ListMeta{}, err
		}
		start, q.version, q.ResourceVersionMatch = token.Start, token.Version, metav1.ResourceVersionMatchExact
	}
	all, version, err := s.at(ctx, q)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	all = slices.DeleteFunc(all, func(o objects.Object) bool { return !q.selects(o) })
	if q.Continue != "" {
		i := slices.IndexFunc(all, func(o objects.Object) bool { return objects.Compare(podspec.NameOf(o), start) >= 0 })
		if all = all[max(i, 0):]; i < 0 {
			all = nil
		}
	}
	list := metav1.ListMeta{ResourceVersion: formatVersion(version)}
	if left := int64(len(all)) - q.Limit; q.Limit > 0 && left > 0 {
		list.Continue = encodeContinue(continueToken{version, podspec.NameOf(all[q.Limit])})
		if q.LabelSelector.Empty() && q.FieldSelector.Empty() {
			list.RemainingItemCount = &left
		}
		all = all[:q.Limit]
	}
	return all, list, nil
}

// at returns all objects of a resource at the version that is asked for.
func (s *server) at(ctx context.Context, q query) ([]objects.Object, uint64, error) {
	if q.resource.compute != nil {
		all, err := q.resource.compute(s, ctx, q.request)
		return all, s.Mirror.Store().Version(), err
	}
	if err := s.await(ctx, q); err != nil {
		return nil, 0, err
	}
	version := uint64(0)
	if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact || q.ResourceVersionMatch == "" && q.Limit > 0 { // the second is as in old clients
		version = q.version
	}
	all, version, err := s.Mirror.Store().List(q.resource.Name, version)
	switch {
	case errors.Is(err, objects.ErrExpired) && q.Continue != "":
		err = errContinueExpired
	case errors.Is(err, objects.ErrExpired):
		err = apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return all, version, s.versionError(err, q.version)
}

// errContinueExpired has the client begin again (k8s.io/apiserver/pkg/storage/etcd3/errors.go).
var errContinueExpired = apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")

// await returns when the store has the version that is asked for, or for none all that has happened.
func (s *server) await(ctx context.Context, q query) error {
	if q.version == 0 {
		if q.ResourceVersion == "0" {
			return nil // any will do
		}
		if err := s.Mirror.Sync(ctx); err != nil {
			return apierrors.NewInternalError(err)
		}
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, futureTimeout)
	defer cancel()
	for {
		_, more, err := s.Mirror.Store().Since(q.version)
		if !errors.Is(err, objects.ErrFuture) {
			return nil
		}
		select {
		case <-more:
		case <-limited.Done():
			return s.versionError(objects.ErrFuture, q.version)
		}
	}
}

// versionError returns the answer to a request for a version that cannot be had, nil for no error.
func (s *server) versionError(err error, version uint64) error {
	now := s.Mirror.Store().Version()
	switch {
	case errors.Is(err, objects.ErrExpired):
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, now))
	case errors.Is(err, objects.ErrFuture): // NewTooLargeResourceVersionError of k8s.io/apiserver/pkg/storage
		e := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", version, now), 1)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return e
	}
	return err
}

// continueToken is where a list goes on.
type continueToken struct {
	Version uint64               `json:"rv"`
	Start   types.NamespacedName `json:"start"`
}

func encodeContinue(t continueToken) string {
	text, _ := json.Marshal(t) // numbers and texts
	return base64.RawURLEncoding.EncodeToString(text)
}

func (s *server) decodeContinue(text string) (t continueToken, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	switch {
	case err != nil:
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	case t.Version == 0:
		return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.Version > s.Mirror.Store().Version(): // of another server: waiting for it makes no sense
		return t, errContinueExpired
	}
	return t, nil
}

func formatVersion(version uint64) string { return strconv.FormatUint(version, 10) }

// collection returns objects in the list that the client wants.
func (s *server) collection(q query, as representation, all []objects.Object, m metav1.ListMeta) runtime.Object {
	switch as {
	case table:
		t := s.table(q, all)
		t.ListMeta = m
		return t
	case metadata:
		list := &metav1.PartialObjectMetadataList{ListMeta: m, Items: make([]metav1.PartialObjectMetadata, 0, len(all))}
		for _, o := range all {
			list.Items = append(list.Items, *s.metadata(o))
		}
		return list
	case whole:
	}
	list, items := q.resource.list(), make([]runtime.Object, 0, len(all))
	for _, o := range all {
		items = append(items, q.resource.converted(o))
	}
	if err := meta.SetList(list, items); err == nil {
		if of, err := meta.ListAccessor(list); err == nil {
			of.SetResourceVersion(m.ResourceVersion)
			of.SetContinue(m.Continue)
			of.SetRemainingItemCount(m.RemainingItemCount)
		}
	}
	return list
}

// metadata returns what all objects have.
func (s *server) metadata(o objects.Object) *metav1.PartialObjectMetadata {
	m := meta.AsPartialObjectMetadata(o)
	m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return m
}

// table returns the objects as kubectl prints them.
func (s *server) table(q query, all []objects.Object) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: tables.Columns(q.resource.Kind), Rows: make([]metav1.TableRow, 0, len(all))}
	now := time.Now()
	for _, o := range all {
		row := tables.Row(o, now)
		switch q.include {
		case metav1.IncludeMetadata:
			row.Object.Object = s.metadata(o)
		case metav1.IncludeObject:
			row.Object.Object = s.codecs.withKind(q.resource.converted(o))
		case metav1.IncludeNone:
			if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" { // which says that these are all
				row.Object.Object = s.metadata(o)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// get answers with an object.
func (s *server) get(w http.ResponseWriter, r *http.Request, q request) {
	of, err := s.parseQuery(request{resource: q.resource}, url.Values{"includeObject": r.URL.Query()["includeObject"]})
	var f format
	if err == nil {
		f, err = s.codecs.accepted(r, true)
	}
	var o objects.Object
	if err == nil {
		o, err = s.find(r.Context(), q)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusOK, s.represent(of, f.as, o, true))
}

// find returns the object that a request is about.
func (s *server) find(ctx context.Context, q request) (objects.Object, error) {
	if q.resource.compute != nil {
		all, err := q.resource.compute(s, ctx, q)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(o objects.Object) bool { return o.GetName() == q.name && o.GetNamespace() == q.namespace }); i >= 0 {
			return all[i], nil
		}
		return nil, apierrors.NewNotFound(q.resource.groupResource(), q.name)
	}
	if err := s.Mirror.Sync(ctx); err != nil {
		return nil, err
	}
	o, ok := s.Mirror.Store().Get(q.resource.Name, types.NamespacedName{Namespace: q.namespace, Name: q.name})
	if !ok {
		return nil, apierrors.NewNotFound(q.resource.groupResource(), q.name)
	}
	return o, nil
}

// represent returns an object as the client wants it. first is set for the first one of an answer: it has the columns of
// a table.
func (s *server) represent(q query, as representation, o objects.Object, first bool) runtime.Object {
	switch as {
	case table:
		t := s.table(q, []objects.Object{o})
		t.ResourceVersion = o.GetResourceVersion()
		if !first {
			t.ColumnDefinitions = nil
		}
		return t
	case metadata:
		return s.metadata(o)
	case whole:
	}
	return q.resource.converted(o)
}
