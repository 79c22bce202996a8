package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The kubelet's limits for a pod's names, in bytes: a DNS label, and the kernel's limit for a host
// name.
const (
	maxLabel    = 63
	MaxHostname = 64
)

// Hostname returns the host name of the pod and its domain, which is empty unless the pod has a
// subdomain. It follows the kubelet's GeneratePodHostNameAndDomain: the override, else
// spec.hostname, else the pod's name cut to 63 bytes.
func Hostname(pod *v1.Pod, clusterDomain string) (host, domain string) {
	if o := pod.Spec.HostnameOverride; o != nil {
		return *o, ""
	}
	host = pod.Name
	if pod.Spec.Hostname != "" {
		host = pod.Spec.Hostname
	}
	if len(host) > maxLabel {
		host = strings.TrimRight(host[:maxLabel], "-.")
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return host, domain
}

// KernelHostname returns the name that uname(2) gives inside the pod: the short one, or the full one with
// setHostnameAsFQDN (GetNodenameForKernel of pkg/kubelet/util). It may be longer than MaxHostname.
func KernelHostname(pod *v1.Pod, clusterDomain string) string {
	host, domain := Hostname(pod, clusterDomain)
	if full := pod.Spec.SetHostnameAsFQDN; full == nil || !*full || domain == "" {
		return host
	}
	return host + "." + domain
}
