// Package podsecurity holds pods to the Pod Security Standards, with the evaluator and in
// the words of Kubernetes' own admission plugin.
package podsecurity

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Level is a level of the standards at a version of them, "baseline:latest" for example.
type Level = api.LevelVersion

// Privileged is the level that allows everything.
func Privileged() Level {
	return Level{Level: api.LevelPrivileged, Version: api.LatestVersion()}
}

// Parse reads a level, with or without a version: privileged, baseline or restricted. No
// text is Privileged.
func Parse(text string) (Level, error) {
	if text == "" {
		return Privileged(), nil
	}
	name, version, versioned := strings.Cut(text, ":")
	l := Privileged()
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

// Rules are the levels that the pods of an input have to keep to.
type Rules struct {
	floor      Level
	namespaces map[string]api.Policy
	evaluator  policy.Evaluator
}

// New returns rules with a level for all pods, which no namespace can lower.
func New(floor Level) *Rules {
	return &Rules{floor: floor, namespaces: map[string]api.Policy{}}
}

// Namespace takes over the labels of a namespace. It is false for one that has no label
// of pod security; the errors are an API server's.
func (r *Rules) Namespace(ns *v1.Namespace) (bool, field.ErrorList) {
	found := false
	for label := range ns.Labels {
		found = found || strings.HasPrefix(label, "pod-security.kubernetes.io/")
	}
	if !found {
		return false, nil
	}
	all := api.Policy{Enforce: Privileged(), Audit: Privileged(), Warn: Privileged()}
	p, errs := api.PolicyToEvaluate(ns.Labels, all)
	r.namespaces[ns.Name] = p
	return true, errs
}

// Check says in which way the pod violates its levels: what is refused, and what is only
// warned about. The pod has its defaults.
func (r *Rules) Check(pod *v1.Pod) (refused, warned string) {
	p, ok := r.namespaces[pod.Namespace]
	if !ok {
		p.Enforce, p.Warn = Privileged(), Privileged()
	}
	if refused = r.violation(r.floor, pod); refused == "" {
		refused = r.violation(p.Enforce, pod)
	}
	if refused == "" {
		warned = strings.Replace(r.violation(p.Warn, pod), "violates", "would violate", 1)
	}
	return refused, warned
}

// violation is in the words of EvaluatePod of k8s.io/pod-security-admission/admission.
func (r *Rules) violation(l Level, pod *v1.Pod) string {
	if l.Level == api.LevelPrivileged {
		return ""
	}
	if r.evaluator == nil {
		e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
		if err != nil {
			return err.Error() // Kubernetes' own checks are sound
		}
		r.evaluator = e
	}
	result := policy.AggregateCheckResults(r.evaluator.EvaluatePod(l, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return ""
	}
	return fmt.Sprintf("violates PodSecurity %q: %s", l.String(), result.ForbiddenDetail())
}
