package manifests

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/gce"
)

// ignoredKinds are the kinds of Kubernetes that have no effect on a single node without an API
// server, by API group.
func ignoredKinds() map[string]string {
	return map[string]string{
		"":                             "ServiceAccount Endpoints Event LimitRange ResourceQuota PodTemplate Binding ComponentStatus",
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

// isIgnored says whether Kubernetes has this kind and it has no effect here.
func isIgnored(apiVersion, kind string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if apiVersion == "v1" {
		group, grouped = "", true
	}
	return grouped && slices.Contains(strings.Fields(ignoredKinds()[group]), kind)
}

// refusedKind says why a machine cannot do without the effect of an ignored kind, and what to do instead; "" for
// the others.
func refusedKind(apiVersion, kind string) (reason, hint string) {
	group, _, _ := strings.Cut(apiVersion, "/")
	switch group + " " + kind {
	case "networking.k8s.io Ingress", "extensions Ingress":
		return "nothing here serves HTTP for pods", "publish the pod with a Service of type NodePort, or with a hostPort"
	case "discovery.k8s.io EndpointSlice", "v1 Endpoints":
		return "the endpoints of a Service are the pods that its selector matches", "give the Service a selector, or the type ExternalName if it is about something outside"
	}
	return "", ""
}

// definedKind returns the kind that a CustomResourceDefinition defines.
func definedKind(doc decode.Document) (group, kind string, ok bool) {
	group, kind = doc.Text("spec.group"), doc.Text("spec.names.kind")
	return group, kind, doc.ObjectKind() == "CustomResourceDefinition" && group != "" && kind != ""
}

// unknownKind explains a document of a kind that is neither ignored nor in known, which has the
// API version of each supported kind.
func unknownKind(doc decode.Document, known map[string]string) Diagnostic {
	apiVersion, kind := doc.APIVersion(), doc.ObjectKind()
	if hint := otherAPI(doc.File, apiVersion, kind); hint != "" {
		return doc.Error("kind", fmt.Sprintf("unknown kind %s in %s", kind, apiVersion), hint)
	}
	if want, ok := known[kind]; ok {
		return doc.Error("apiVersion", fmt.Sprintf("there is no kind %s in %s", kind, apiVersion), "use apiVersion: "+want)
	}
	names := []string{"List"}
	for name := range known {
		names = append(names, name)
	}
	for _, kinds := range ignoredKinds() {
		names = append(names, strings.Fields(kinds)...)
	}
	slices.Sort(names)
	hint := cmp.Or(decode.DidYouMean(kind, names), doc.TemplateHint(""))
	return doc.Error("kind", fmt.Sprintf("unknown kind %s in %s", kind, apiVersion), hint)
}

// otherAPI returns a hint about an API group that is not one of Kubernetes', whose kinds may have
// the names of other kinds: Job of Volcano, Service of Knative.
func otherAPI(file, apiVersion, kind string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	switch {
	case apiVersion == "v1" && kind == "Config":
		return "this is a kubeconfig file, not a manifest"
	case group == "kustomize.config.k8s.io":
		return kustomization(file)
	case strings.HasSuffix(group, ".config.k8s.io"), group == "kubeadm.k8s.io":
		return "this configures a component of Kubernetes: move it elsewhere"
	case grouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io"):
		return "a custom resource is ignored if its CustomResourceDefinition is in the input"
	}
	return ""
}

func kustomization(file string) string {
	return fmt.Sprintf("this is a kustomization: kubectl kustomize %s | runonce run -", dirOf(file))
}

// dirOf returns the directory of a file in a command that the user is to run.
func dirOf(file string) string {
	if strings.Contains(file, "://") || file == "<stdin>" {
		return "DIR"
	}
	return path.Dir(file)
}

// notAnObject is the error of a document that is a list or a single value.
func notAnObject(doc decode.Document) Diagnostic {
	hint := decode.Foreign(doc.File)
	if hint == "" {
		hint = "a manifest begins with apiVersion and kind"
		if isComment(doc.Text("")) {
			hint = noComments
		}
		if h := doc.TemplateHint(""); h != "" {
			hint += "; " + h
		}
	}
	return doc.Error("", "not an object", hint)
}

// untyped explains a document without apiVersion or kind.
func untyped(doc decode.Document) Diagnostics {
	hint := cmp.Or(otherFormat(doc), doc.TemplateHint(""))
	var out Diagnostics
	for _, name := range []string{"apiVersion", "kind"} {
		switch kind := doc.Kind(name); {
		case kind > decode.Null && kind != decode.String:
			out = append(out, doc.Error(name, "not a string", hint))
		case doc.Text(name) == "":
			out = append(out, doc.Error(name, "Required value", hint))
		}
	}
	return out
}

// otherFormat recognizes files that are often found next to manifests.
func otherFormat(doc decode.Document) string {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !doc.Has(n) })
	}
	file := strings.ToLower(path.Base(doc.File))
	switch {
	case slices.ContainsFunc(doc.Keys(), isComment):
		return noComments
	case decode.Foreign(file) != "":
		return decode.Foreign(file)
	case strings.HasPrefix(file, "kustomization."), has("resources", "namePrefix"), has("configMapGenerator"), has("patches"):
		return kustomization(doc.File)
	case doc.Kind("services") == decode.Map:
		return "this looks like a compose file, not a Kubernetes manifest"
	case doc.APIVersion() == "v2" && has("name", "version"):
		return fmt.Sprintf("this is a Helm chart: helm template %s | runonce run -", dirOf(doc.File))
	case strings.HasPrefix(file, "values"), has("replicaCount"):
		return "this looks like Helm values: run helm template and use its output"
	case file == gce.Attribute:
		return "for a declaration of Compute Engine, use --format " + FormatGCE
	case has("spec"), has("containers"):
		return "a pod begins with apiVersion: v1 and kind: Pod"
	}
	return ""
}

const noComments = "JSON has no comments"

func isComment(text string) bool {
	return strings.HasPrefix(text, "//") || strings.HasPrefix(text, "/*")
}
