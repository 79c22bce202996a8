package validation

import (
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// podSecurity checks pods against the Pod Security Standards, with the evaluator and in the
// words of Kubernetes' own admission plugin.
type podSecurity struct {
	minimum    api.LevelVersion // for all pods; namespaces cannot lower it
	namespaces map[string]api.Policy
}

// evaluator is made when it is first needed.
var evaluator = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// Exposure says by what the pod violates the baseline of the Pod Security Standards, and so may get at
// the machine; "" for nothing. The pod has its defaults.
func Exposure(pod *v1.Pod) string {
	return violation(api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}, pod)
}

// privileged is the level that allows everything.
func privileged() api.LevelVersion {
	return api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
}

// parseLevel reads privileged, baseline or restricted, with or without a version; "" is
// privileged.
func parseLevel(text string) (api.LevelVersion, error) {
	l := privileged()
	if text == "" {
		return l, nil
	}
	name, version, versioned := strings.Cut(text, ":")
	var err error
	if l.Level, err = api.ParseLevel(name); err != nil {
		return l, fmt.Errorf("pod security %q: %w", text, err)
	}
	if versioned {
		if l.Version, err = api.ParseVersion(version); err != nil {
			return l, fmt.Errorf("pod security %q: version %w", text, err)
		}
	}
	return l, nil
}

// Namespace validates a namespace and applies its pod security labels. It returns false when there are
// none; the errors are those of an API server.
func (r *Rules) Namespace(ns *v1.Namespace) (bool, field.ErrorList) {
	ns.Namespace = ""
	errs := validate(ns, corev1.SetObjectDefaults_Namespace, corev1.Convert_v1_Namespace_To_core_Namespace, corevalidation.ValidateNamespace)
	found := false
	for label := range ns.Labels {
		found = found || strings.HasPrefix(label, "pod-security.kubernetes.io/")
	}
	if !found {
		return false, errs
	}
	all := api.Policy{Enforce: privileged(), Audit: privileged(), Warn: privileged()}
	p, policyErrs := api.PolicyToEvaluate(ns.Labels, all)
	r.security.namespaces[ns.Name] = p
	return true, append(errs, policyErrs...)
}

// PodSecurity says how the pod violates the levels that are enforced, or else those that are
// only warned about. The pod has its defaults.
func (r *Rules) PodSecurity(pod *v1.Pod) (refused, warned string) {
	p, ok := r.security.namespaces[pod.Namespace]
	if !ok {
		p.Enforce, p.Warn = privileged(), privileged()
	}
	if refused = violation(r.security.minimum, pod); refused == "" {
		refused = violation(p.Enforce, pod)
	}
	if refused == "" {
		warned = strings.Replace(violation(p.Warn, pod), "violates", "would violate", 1)
	}
	return refused, warned
}

// violation is in the words of EvaluatePod of k8s.io/pod-security-admission/admission.
func violation(l api.LevelVersion, pod *v1.Pod) string {
	if l.Level == api.LevelPrivileged {
		return ""
	}
	evaluator, err := evaluator()
	if err != nil {
		return err.Error() // Kubernetes' own checks are valid
	}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(l, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return ""
	}
	return fmt.Sprintf("violates PodSecurity %q: %s", l.String(), result.ForbiddenDetail())
}
