package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/internal/podspec"
)

// Acceptor runs pods that clients create.
type Acceptor interface {
	// Accept has a pod run that has no status, unless that is a dry run. The error is a *RefusedError if the pod is
	// invalid or not admitted.
	Accept(ctx context.Context, pod *v1.Pod, dryRun bool) error
}

// RefusedError says why a pod is not run.
type RefusedError struct {
	// Problems are those of its fields. Without any, the pod was not admitted, for Reason, in one word, and Message.
	Problems        []metav1.StatusCause
	Reason, Message string
}

func (e *RefusedError) Error() string {
	if len(e.Problems) == 0 {
		return e.Reason + ": " + e.Message
	}
	all := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		all = append(all, strings.TrimPrefix(p.Field+": "+p.Message, ": "))
	}
	if len(all) == 1 {
		return all[0]
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// status returns the answer of an API server, whose admission has the place of ours.
func (e *RefusedError) status(name string) error {
	if len(e.Problems) == 0 {
		return apierrors.NewForbidden(podsResource, name, e)
	}
	err := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), name, nil)
	err.ErrStatus.Message, err.ErrStatus.Details.Causes = fmt.Sprintf("Pod %q is invalid: %s", name, e.Error()), e.Problems
	return err
}

// create has a pod run that a client posts.
func (s *server) create(w http.ResponseWriter, r *http.Request, q request) {
	f, err := s.codecs.accepted(r, true) // before anything is done
	var dry []string
	if err == nil {
		dry, err = dryRun(r.URL.Query())
	}
	var pod *v1.Pod
	if err == nil {
		pod, err = s.readPod(w, r)
	}
	if err == nil {
		err = complete(pod, q.namespace)
	}
	if err == nil {
		err = s.accept(r.Context(), pod, len(dry) > 0)
	}
	if err == nil {
		pod, err = s.accepted(r.Context(), pod)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusCreated, s.represent(query{request: q, include: metav1.IncludeMetadata}, f.as, pod, true))
}

// readPod decodes the pod of a request. Of fields that do not exist, it is as strict as is asked for.
func (s *server) readPod(w http.ResponseWriter, r *http.Request) (*v1.Pod, error) {
	strictness := r.URL.Query().Get("fieldValidation")
	switch strictness {
	case "", metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict:
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldValidation: %q is none of Ignore, Warn, Strict", strictness))
	}
	o, err := decodeBody(r, v1.SchemeGroupVersion.WithKind("Pod"), s.codecs.strict)
	pod, ok := o.(*v1.Pod)
	if strict, is := runtime.AsStrictDecodingError(err); is && ok {
		switch strictness {
		case metav1.FieldValidationIgnore:
			err = nil
		case "", metav1.FieldValidationWarn:
			for _, problem := range strict.Errors() {
				w.Header().Add("Warning", fmt.Sprintf("299 - %q", problem.Error()))
			}
			err = nil
		default:
			err = apierrors.NewBadRequest(err.Error())
		}
	}
	if err == nil && !ok {
		err = notA("Pod")
	}
	return pod, err
}

// complete checks and sets what the API server sets of a new pod.
func complete(pod *v1.Pod, namespace string) error {
	switch {
	case pod.Namespace != "" && pod.Namespace != namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case pod.ResourceVersion != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if pod.Name == "" && pod.GenerateName != "" {
		pod.Name = pod.GenerateName + rand.String(5)
	}
	if problems := checkNames(pod.Name, namespace); len(problems) > 0 {
		return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, problems)
	}
	pod.Namespace, pod.UID, pod.CreationTimestamp, pod.ManagedFields, pod.Status = namespace, "", metav1.Time{}, nil, v1.PodStatus{}
	return nil
}

// checkNames refuses what cannot be the name of a pod and of its namespace, before anything is called that.
func checkNames(name, namespace string) (problems field.ErrorList) {
	at := field.NewPath("metadata")
	if name == "" {
		return append(problems, field.Required(at.Child("name"), "name or generateName is required"))
	}
	for _, text := range validation.NameIsDNSSubdomain(name, false) {
		problems = append(problems, field.Invalid(at.Child("name"), name, text))
	}
	for _, text := range validation.ValidateNamespaceName(namespace, false) {
		problems = append(problems, field.Invalid(at.Child("namespace"), namespace, text))
	}
	return problems
}

func (s *server) accept(ctx context.Context, pod *v1.Pod, dryRun bool) error {
	if err := s.Mirror.Sync(ctx); err != nil {
		return err
	}
	if _, exists := s.Mirror.Store().Get(resourcePods, podspec.NameOf(pod)); exists {
		return apierrors.NewAlreadyExists(podsResource, pod.Name)
	}
	err := s.Acceptor.Accept(ctx, pod, dryRun)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return refused.status(pod.Name)
	}
	return err
}

// accepted returns the pod as it is now, or as it was given if it is not there yet.
func (s *server) accepted(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	if err := s.Mirror.Sync(ctx); err != nil {
		return nil, err
	}
	o, _ := s.Mirror.Store().Get(resourcePods, podspec.NameOf(pod))
	if now, ok := o.(*v1.Pod); ok {
		return now, nil
	}
	pod.Status.Phase = v1.PodPending
	return pod, nil
}
