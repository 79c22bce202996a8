package ocispec

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// HostsFile returns the content of the pod's /etc/hosts (kubelet managedHostsFileContent
// and nodeHostsFileContent): the pod's own names, or for a pod on the host network the
// content of the host's file, then the aliases.
func HostsFile(pod *v1.Pod, sandbox engine.Sandbox, host []byte) []byte {
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
		names := sandbox.Hostname
		if sandbox.Domain != "" {
			// With setHostnameAsFQDN the host name is the full name already.
			short := strings.TrimSuffix(sandbox.Hostname, "."+sandbox.Domain)
			names = short + "." + sandbox.Domain + "\t" + short
		}
		for _, ip := range sandbox.IPs {
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
