package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// debug adds ephemeral containers to a pod.
func (s *server) debug(w http.ResponseWriter, r *http.Request, q request) {
	f, err := s.codecs.accepted(r, true) // before anything is done
	var dry []string
	if err == nil {
		dry, err = dryRun(r.URL.Query())
	}
	var pod *v1.Pod
	if err == nil {
		pod, err = s.findPod(r.Context(), q)
	}
	var added []v1.EphemeralContainer
	if err == nil {
		added, err = s.added(r, pod)
	}
	if err == nil && len(dry) > 0 {
		pod = shallow(pod)
		pod.Spec.EphemeralContainers = slices.Concat(pod.Spec.EphemeralContainers, added)
	} else if err == nil {
		pod, err = s.debugIn(r, q, pod, added)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, http.StatusOK, s.represent(query{request: q, include: metav1.IncludeMetadata}, f.as, pod, true))
}

// debugIn starts the containers in a pod, and returns it with them.
func (s *server) debugIn(r *http.Request, q request, pod *v1.Pod, added []v1.EphemeralContainer) (*v1.Pod, error) {
	for _, c := range added {
		if err := debugError(pod.Name, s.Pods.Debug(r.Context(), pod, c)); err != nil {
			return nil, err
		}
	}
	return s.findPod(r.Context(), q)
}

// debugError is the answer to a container that could not be started.
func debugError(name string, err error) error {
	var known apierrors.APIStatus
	if err == nil || errors.As(err, &known) {
		return err
	}
	return apierrors.NewConflict(podsResource, name, err)
}

// added returns the ephemeral containers that a request adds to the pod. Others cannot be changed.
func (s *server) added(r *http.Request, pod *v1.Pod) (added []v1.EphemeralContainer, err error) {
	all, err := s.changed(r, pod)
	if err != nil {
		return nil, err
	}
	byName := map[string]v1.EphemeralContainer{}
	for _, c := range all {
		if _, ok := byName[c.Name]; ok {
			return nil, refusedContainers(pod, field.Duplicate(ephemeralPath.Key("name"), c.Name))
		}
		byName[c.Name] = c
	}
	for _, c := range pod.Spec.EphemeralContainers { // ValidatePodEphemeralContainersUpdate of pkg/apis/core/validation
		now, ok := byName[c.Name]
		switch {
		case !ok:
			return nil, refusedContainers(pod, field.Forbidden(ephemeralPath, fmt.Sprintf("existing ephemeral containers %q may not be removed", c.Name)))
		case !equality.Semantic.DeepEqual(c, now):
			return nil, refusedContainers(pod, field.Forbidden(ephemeralPath, fmt.Sprintf("existing ephemeral containers %q may not be changed", c.Name)))
		}
		delete(byName, c.Name)
	}
	for _, c := range all {
		if _, ok := byName[c.Name]; ok {
			added = append(added, c)
		}
	}
	return added, nil
}

var ephemeralPath = field.NewPath("spec", "ephemeralContainers")

func refusedContainers(pod *v1.Pod, problem *field.Error) error {
	return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, field.ErrorList{problem})
}

// changed returns the ephemeral containers of a pod as a request changes them.
func (s *server) changed(r *http.Request, pod *v1.Pod) ([]v1.EphemeralContainer, error) {
	if r.Method == http.MethodPut {
		return s.replaced(r, pod)
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	known := []types.PatchType{types.MergePatchType, types.StrategicMergePatchType}
	if !slices.Contains(known, types.PatchType(kind)) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{ // NewUnsupportedMediaTypeError of k8s.io/apiserver
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s", known[0], known[1]),
		}}
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	patch, err := parsePatch(body)
	switch {
	case err != nil:
		return nil, err
	case types.PatchType(kind) == types.MergePatchType && patch != nil: // has all
		return *patch, nil
	case patch == nil:
		return pod.Spec.EphemeralContainers, nil
	}
	return merged(pod.Spec.EphemeralContainers, *patch), nil // has those that are added, or change
}

// replaced returns the ephemeral containers of the pod that a request has.
func (s *server) replaced(r *http.Request, old *v1.Pod) ([]v1.EphemeralContainer, error) {
	body, err := s.read(r, v1.SchemeGroupVersion.WithKind("Pod"))
	pod, ok := body.(*v1.Pod)
	switch {
	case err != nil || !ok:
		return nil, cmp.Or(err, notA("Pod"))
	case pod.Name != old.Name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", pod.Name, old.Name))
	case pod.ResourceVersion != "" && pod.ResourceVersion != old.ResourceVersion: // clients read it again, and retry
		return nil, apierrors.NewConflict(podsResource, old.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return pod.Spec.EphemeralContainers, nil
}

// parsePatch reads the ephemeral containers of a patch, which must have nothing else but their order, as kubectl writes
// it. They are nil if the patch does not have them.
func parsePatch(text []byte) (*[]v1.EphemeralContainer, error) {
	var patch struct {
		Spec struct {
			Order      any                      `json:"$setElementOrder/ephemeralContainers"`
			Containers *[]v1.EphemeralContainer `json:"ephemeralContainers"`
		} `json:"spec"`
	}
	body := json.NewDecoder(bytes.NewReader(text))
	body.DisallowUnknownFields()
	err := body.Decode(&patch)
	if _, more := body.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("something follows it")
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the patch, which may have spec.ephemeralContainers only: " + err.Error())
	}
	return patch.Spec.Containers, nil
}

// merged returns the containers with those of a patch, by name.
func merged(known, patch []v1.EphemeralContainer) []v1.EphemeralContainer {
	all := slices.Clone(known)
	for _, c := range patch {
		if i := slices.IndexFunc(all, func(o v1.EphemeralContainer) bool { return o.Name == c.Name }); i >= 0 {
			all[i] = c
		} else {
			all = append(all, c)
		}
	}
	return all
}
