package validation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservice "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/runonce/runonce/manifests/decode"
)

// CheckService sets the defaults of a Service and returns all problems with it. The warnings are those
// of an API server about fields without an effect.
func (r *Rules) CheckService(doc decode.Document, o *v1.Service) decode.Diagnostics {
	problems := Diagnose(doc, r.Object(o), "")
	var in core.Service
	if len(problems) > 0 || len(doc.Wrong()) > 0 || corev1.Convert_v1_Service_To_core_Service(o, &in, nil) != nil {
		return problems
	}
	for _, w := range apiservice.GetWarningsForService(&in, nil) {
		path, message, _ := strings.Cut(w, " ")
		path = strings.Replace(strings.TrimSuffix(path, ":"), "spec.S", "spec.s", 1) // spec.SessionAffinity
		if strings.HasPrefix(path, "spec.") && doc.Has(path) && !aboutOthers(path, message) {
			problems = append(problems, doc.Warning(path, message, ""))
		}
	}
	return problems
}

// aboutOthers says whether a warning is about other clusters and versions, or a field that the table of
// fields has a warning for.
func aboutOthers(path, message string) bool {
	return strings.Contains(message, "deprecated") || strings.HasPrefix(path, "spec.loadBalancer") || path == "spec.trafficDistribution"
}

// service sets the defaults of a Service and validates it as a new one (pkg/registry/core/service). What only
// an API server assigns is cleared; what it allocates stays as it is written: addresses and node ports, which
// may be any port.
func service(o *v1.Service) field.ErrorList {
	o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, Annotations: o.Annotations}
	o.Status = v1.ServiceStatus{}
	errs := validate(o, setServiceDefaults, corev1.Convert_v1_Service_To_core_Service, func(in *core.Service) field.ErrorList {
		if apiservice.NeedsHealthCheck(in) && in.Spec.HealthCheckNodePort == 0 {
			in.Spec.HealthCheckNodePort = 1 // an API server allocates one before it validates
		}
		return corevalidation.ValidateServiceCreate(in)
	})
	for _, err := range errs { // it names this field wrongly
		err.Field = strings.Replace(err.Field, "spec.LoadBalancer", "spec.loadBalancer", 1)
	}
	errs = append(errs, allocationErrors(o)...)
	if len(errs) == 0 {
		setFamilies(&o.Spec)
	}
	return errs
}

// setServiceDefaults also does what comes before validation (normalizeClusterIPs of pkg/registry/core/service/storage).
func setServiceDefaults(o *v1.Service) {
	corev1.SetObjectDefaults_Service(o)
	if o.Spec.ClusterIP != "" && len(o.Spec.ClusterIPs) == 0 {
		o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	}
}

// allocationErrors are those that an API server finds when it allocates node ports and addresses, as far as they
// do not depend on the cluster (Allocators of pkg/registry/core/service/storage).
func allocationErrors(o *v1.Service) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for i, p := range o.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		for _, msg := range apivalidation.IsValidPortNum(int(p.NodePort)) {
			errs = append(errs, field.Invalid(spec.Child("ports").Index(i).Child("nodePort"), p.NodePort, msg))
		}
	}
	if o.Spec.Type == v1.ServiceTypeExternalName || familyPolicy(&o.Spec) != v1.IPFamilyPolicySingleStack {
		return errs
	}
	const several = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
	if len(o.Spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), v1.IPFamilyPolicySingleStack, several+"cluster IPs are specified"))
	}
	if len(o.Spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), v1.IPFamilyPolicySingleStack, several+"IP families are specified"))
	}
	return errs
}

func familyPolicy(s *v1.ServiceSpec) v1.IPFamilyPolicy {
	switch {
	case s.IPFamilyPolicy != nil:
		return *s.IPFamilyPolicy
	case s.ClusterIP == v1.ClusterIPNone && len(s.Selector) == 0:
		return v1.IPFamilyPolicyRequireDualStack
	}
	return v1.IPFamilyPolicySingleStack
}

// setFamilies sets what does not depend on the families that a cluster has (initIPFamilyFields of
// pkg/registry/core/service/storage).
func setFamilies(s *v1.ServiceSpec) {
	if s.Type == v1.ServiceTypeExternalName {
		return
	}
	policy := familyPolicy(s)
	s.IPFamilyPolicy = &policy
	if slices.Contains(s.ClusterIPs, v1.ClusterIPNone) {
		return
	}
	for _, ip := range s.ClusterIPs[min(len(s.IPFamilies), len(s.ClusterIPs)):] {
		family := v1.IPv4Protocol
		if strings.Contains(ip, ":") {
			family = v1.IPv6Protocol
		}
		s.IPFamilies = append(s.IPFamilies, family)
	}
}
