// Package etc writes the files of /etc that the containers of a pod share.
package etc

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Names are what a pod is called, and where it is.
type Names struct {
	Hostname string // that the containers see: the full name with setHostnameAsFQDN
	Domain   string // of a pod with a subdomain
	IPs      []string
}

// HostsFile returns the content of the pod's /etc/hosts (kubelet managedHostsFileContent
// and nodeHostsFileContent): the pod's own names, or for a pod on the host network the
// host's file, then the aliases. host is the content of the host's file.
func HostsFile(pod *v1.Pod, n Names, host []byte) []byte {
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
		for _, ip := range n.IPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, n.line())
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

// line gives the full name, when the pod has a domain, and the short one.
func (n Names) line() string {
	if n.Domain == "" {
		return n.Hostname
	}
	short := strings.TrimSuffix(n.Hostname, "."+n.Domain)
	return short + "." + n.Domain + "\t" + short
}
