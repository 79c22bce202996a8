package manifests

import (
	"fmt"

	"github.com/runonce/runonce/internal/podspec"
)

// checkHostname refuses a pod whose full name is to be its host name and is too long for one: neither a
// kubelet nor this machine can start it. If the cluster's domain is not known, it may be short.
func (r *reader) checkHostname(e *entry, pe podEntry) {
	if pe.pod.Spec.HostNetwork {
		return
	}
	domain := r.options.ClusterDomain
	if domain == "" {
		domain = "x"
	}
	if name := podspec.KernelHostname(pe.pod, domain); len(name) > podspec.MaxHostname {
		e.fail(pe.prefix+"spec.setHostnameAsFQDN", fmt.Sprintf("the host name would be %s, which has %d bytes, more than the %d of a host name", name, len(name), podspec.MaxHostname),
			"shorten the names, or set a hostname")
	}
}
