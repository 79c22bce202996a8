package apiserver

import (
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reviewResources are what clients ask about themselves. Who may ask may do all that this server does.
func reviewResources() []*resource {
	of := func(group, name, singular, kind string, review func(*server, runtime.Object) (runtime.Object, error)) *resource {
		return &resource{APIResource: metav1.APIResource{
			Name: name, SingularName: singular, Kind: kind, Group: group, Version: "v1", Verbs: metav1.Verbs{"create"},
		}, review: review}
	}
	return []*resource{
		of(authenticationv1.GroupName, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", (*server).whoAmI),
		of(authorizationv1.GroupName, "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview", (*server).canI),
		of(authorizationv1.GroupName, "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview", (*server).whatCanI),
	}
}

// review answers a review.
func (s *server) review(w http.ResponseWriter, r *http.Request, q request) {
	if r.Method != http.MethodPost || q.name != "" {
		s.fail(w, r, apierrors.NewMethodNotSupported(q.resource.groupResource(), verbs[r.Method]))
		return
	}
	o, err := s.read(r, q.resource.kind())
	if err == nil {
		o, err = q.resource.review(s, o)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, r, http.StatusCreated, o)
}

func notA(kind string) error {
	return apierrors.NewBadRequest("the body of the request is no " + kind)
}

func (s *server) whoAmI(o runtime.Object) (runtime.Object, error) {
	review, ok := o.(*authenticationv1.SelfSubjectReview)
	if !ok {
		return nil, notA("SelfSubjectReview")
	}
	review.Status.UserInfo = authenticationv1.UserInfo{Username: s.User, Groups: []string{"system:masters", "system:authenticated"}}
	return review, nil
}

func (s *server) canI(o runtime.Object) (runtime.Object, error) {
	review, ok := o.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return nil, notA("SelfSubjectAccessReview")
	}
	a, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	if (a == nil) == (path == nil) { // ValidateSelfSubjectAccessReviewSpec of pkg/apis/authorization/validation
		problem := field.Invalid(field.NewPath("spec", "resourceAttributes"), a, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview").GroupKind(), "", field.ErrorList{problem})
	}
	review.Status.Allowed = a != nil && s.does(a) || path != nil && path.Verb == "get"
	if !review.Status.Allowed {
		review.Status.Reason = "this server does not do that, whoever asks"
	}
	return review, nil
}

// does says whether this server does what is asked for.
func (s *server) does(a *authorizationv1.ResourceAttributes) bool {
	for _, one := range s.resources {
		if a.Group != "*" && a.Group != one.Group || a.Resource != "*" && a.Resource != one.Name {
			continue
		}
		allowed := one.Verbs
		if a.Subresource != "" {
			i := slices.IndexFunc(one.subresources, func(sub subresource) bool { return sub.Name == a.Subresource })
			if i < 0 {
				return false
			}
			allowed = one.subresources[i].Verbs
		}
		if slices.Contains(allowed, a.Verb) {
			return true
		}
	}
	return false
}

func (s *server) whatCanI(o runtime.Object) (runtime.Object, error) {
	review, ok := o.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, notA("SelfSubjectRulesReview")
	}
	for _, one := range s.resources {
		rule := func(name string, verbs metav1.Verbs) {
			review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
				APIGroups: []string{one.Group}, Resources: []string{name}, Verbs: verbs,
			})
		}
		rule(one.Name, one.Verbs)
		for _, sub := range one.subresources {
			rule(one.Name+"/"+sub.Name, sub.Verbs)
		}
	}
	review.Status.NonResourceRules = []authorizationv1.NonResourceRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}}
	return review, nil
}
