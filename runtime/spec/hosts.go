package spec

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HostsFile returns the content of the pod's /etc/hosts (kubelet managedHostsFileContent
// and nodeHostsFileContent): the pod's own names, or for a pod on the host network the
// host's file, then the aliases. host is the content of the host's file.
func HostsFile(pod *v1.Pod, box Sandbox, host []byte) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(host)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		b.WriteString("127.0.0.1\tlocalhost\n")
		b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\n")
		b.WriteString("fe00::0\tip6-mcastprefix\n")
		b.WriteString("fe00::1\tip6-allnodes\n")
		b.WriteString("fe00::2\tip6-allrouters\n")
		names := hostNames(pod, box)
		for _, ip := range box.IPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, names)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	return b.Bytes()
}

// clusterDomain is the last part of the domain of pods with a subdomain, where the sandbox
// names none: what clusters call theirs.
const clusterDomain = "cluster.local"

// hostNames returns the full name, when the pod has a domain, and the short one.
func hostNames(pod *v1.Pod, box Sandbox) string {
	domain := box.Domain
	if domain == "" && pod.Spec.Subdomain != "" && pod.Spec.HostnameOverride == nil {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	if domain == "" {
		return box.Hostname
	}
	short := strings.TrimSuffix(box.Hostname, "."+domain)
	return short + "." + domain + "\t" + short
}
