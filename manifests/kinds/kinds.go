// Package kinds knows the kinds of Kubernetes that mean nothing here, and what files are
// that are no manifests at all.
package kinds

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/fault"
)

// otherKinds are the kinds of Kubernetes that mean nothing on a single node without an
// API server, by API group.
func otherKinds() map[string]string {
	return map[string]string{
		"":                             "Service ServiceAccount Endpoints Event LimitRange ResourceQuota PodTemplate Binding ComponentStatus",
		"admissionregistration.k8s.io": "ValidatingWebhookConfiguration MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
		"apiextensions.k8s.io":         "CustomResourceDefinition",
		"apiregistration.k8s.io":       "APIService",
		"apps":                         "ControllerRevision",
		"autoscaling":                  "HorizontalPodAutoscaler",
		"certificates.k8s.io":          "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest",
		"coordination.k8s.io":          "Lease LeaseCandidate",
		"discovery.k8s.io":             "EndpointSlice",
		"events.k8s.io":                "Event",
		"extensions":                   "Ingress NetworkPolicy PodSecurityPolicy",
		"flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
		"gateway.networking.k8s.io":    "Gateway GatewayClass HTTPRoute GRPCRoute TCPRoute TLSRoute UDPRoute ReferenceGrant",
		"networking.k8s.io":            "Ingress IngressClass NetworkPolicy IPAddress ServiceCIDR",
		"policy":                       "PodDisruptionBudget PodSecurityPolicy",
		"rbac.authorization.k8s.io":    "Role ClusterRole RoleBinding ClusterRoleBinding",
		"resource.k8s.io":              "ResourceClaim ResourceClaimTemplate ResourceSlice DeviceClass DeviceTaintRule",
		"scheduling.k8s.io":            "PodGroup CompositePodGroup Workload",
		"storage.k8s.io":               "StorageClass CSIDriver CSINode CSIStorageCapacity VolumeAttachment VolumeAttributesClass",
	}
}

// Skipped says whether Kubernetes has this kind and it means nothing here.
func Skipped(apiVersion, kind string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return apiVersion == "v1" && slices.Contains(strings.Fields(otherKinds()[""]), kind)
	}
	return slices.Contains(strings.Fields(otherKinds()[group]), kind)
}

// Defined returns the kind that a CustomResourceDefinition defines.
func Defined(doc decode.Document) (group, kind string, ok bool) {
	group, kind = doc.Text("spec.group"), doc.Text("spec.names.kind")
	return group, kind, doc.ObjectKind() == "CustomResourceDefinition" && group != "" && kind != ""
}

// Unknown explains a document of a kind that is neither skipped nor in known, which
// holds the API version of each kind that means something here.
func Unknown(doc decode.Document, known map[string]string) fault.Fault {
	apiVersion, kind := doc.APIVersion(), doc.ObjectKind()
	if want, ok := known[kind]; ok {
		return doc.Fault("apiVersion", fmt.Sprintf("there is no kind %s in %s", kind, apiVersion), "use apiVersion: "+want)
	}
	names := []string{"List"}
	for name := range known {
		names = append(names, name)
	}
	for _, kinds := range otherKinds() {
		names = append(names, strings.Fields(kinds)...)
	}
	slices.Sort(names)
	hint := strings.TrimPrefix(orTemplate(doc), "; ")
	if group, _, ok := strings.Cut(apiVersion, "/"); hint == "" && ok && strings.Contains(group, ".") && otherKinds()[group] == "" {
		hint = "a custom resource is skipped when its CustomResourceDefinition is in the input"
	}
	if near := decode.Nearest(kind, names); near != "" && near != kind {
		hint = "did you mean " + near + "?"
	}
	return doc.Fault("kind", fmt.Sprintf("unknown kind %s in %s", kind, apiVersion), hint)
}

// NotAnObject is the fault of a document that is a list or a single value.
func NotAnObject(doc decode.Document) fault.Fault {
	hint := decode.Foreign(doc.File)
	if hint == "" {
		hint = "a manifest begins with apiVersion and kind" + orTemplate(doc)
	}
	return doc.Fault("", "not an object", hint)
}

// Untyped explains a document without apiVersion or kind.
func Untyped(doc decode.Document) fault.List {
	hint := otherFormat(doc)
	if hint == "" {
		hint = strings.TrimPrefix(orTemplate(doc), "; ")
	}
	var out fault.List
	for _, name := range []string{"apiVersion", "kind"} {
		switch kind := doc.Kind(name); {
		case kind > decode.Null && kind != decode.String:
			out = append(out, doc.Fault(name, "not a string", hint))
		case doc.Text(name) == "":
			out = append(out, doc.Fault(name, "Required value", hint))
		}
	}
	return out
}

// otherFormat recognizes the files that are often found beside manifests.
func otherFormat(doc decode.Document) string {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !doc.Has(n) })
	}
	file := strings.ToLower(path.Base(doc.File))
	comment := func(key string) bool { return strings.HasPrefix(key, "//") || strings.HasPrefix(key, "/*") }
	switch {
	case slices.ContainsFunc(doc.Keys(), comment):
		return "JSON has no comments"
	case decode.Foreign(file) != "":
		return decode.Foreign(file)
	case strings.HasPrefix(file, "kustomization."), has("resources", "namePrefix"), has("configMapGenerator"), has("patches"):
		return "this is a kustomization: run kubectl kustomize and use its output"
	case doc.Kind("services") == decode.Map:
		return "this looks like a compose file, not a Kubernetes manifest"
	case doc.APIVersion() == "v2" && has("name", "version"):
		return "this is a Helm chart: run helm template and use its output"
	case strings.HasPrefix(file, "values"), has("replicaCount"):
		return "this looks like Helm values: run helm template and use its output"
	case has("spec"), has("containers"):
		return "a pod begins with apiVersion: v1 and kind: Pod"
	}
	return ""
}

func orTemplate(d decode.Document) string {
	if h := d.TemplateHint(""); h != "" {
		return "; " + h
	}
	return ""
}
