package network

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// The kubelet's limits for a pod's names, in bytes: a DNS label, and the kernel's limit for
// a host name.
const (
	maxHostname       = 63
	maxKernelHostname = 64
)

// podHostname returns the host name of the pod and its domain, which is empty unless the pod
// has a subdomain. It follows the kubelet's GeneratePodHostNameAndDomain: the override,
// else spec.hostname, else the pod's name cut to 63 bytes.
func podHostname(pod *v1.Pod, clusterDomain string) (host, domain string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		if *o == "" || len(*o) > maxKernelHostname {
			return "", "", failure.Permanentf("spec.hostnameOverride %q: must have 1 to %d characters", *o, maxKernelHostname)
		}
		return *o, "", nil
	}
	host = pod.Name
	if pod.Spec.Hostname != "" {
		host = pod.Spec.Hostname
	}
	if len(host) > maxHostname {
		host = strings.TrimRight(host[:maxHostname], "-.")
	}
	if host == "" {
		return "", "", failure.Permanentf("no host name can be made from the pod's name %q", pod.Name)
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return host, domain, nil
}

// kernelHostname returns the name that uname(2) gives inside the pod: the short one, or
// the full one with setHostnameAsFQDN; and the pod's domain.
func kernelHostname(pod *v1.Pod, clusterDomain string) (name, domain string, err error) {
	host, domain, err := podHostname(pod, clusterDomain)
	if err != nil {
		return "", "", err
	}
	if asFQDN := pod.Spec.SetHostnameAsFQDN; asFQDN == nil || !*asFQDN || domain == "" {
		return host, domain, nil
	}
	fqdn := host + "." + domain
	if len(fqdn) > maxKernelHostname {
		return "", "", failure.Permanentf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxKernelHostname, len(fqdn))
	}
	return fqdn, domain, nil
}
