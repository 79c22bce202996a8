package network

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

// warnHostNetwork warns of annotations without effect on a pod on the host's network.
func (m *Manager) warnHostNetwork(pod *v1.Pod) {
	for _, name := range []string{ingressAnnotation, egressAnnotation, networksAnnotation} {
		if _, ok := pod.Annotations[name]; ok {
			m.o.Log.Warn("annotation has no effect with spec.hostNetwork", "pod", pod.Namespace+"/"+pod.Name, "annotation", name)
		}
	}
}

// hostname returns the name inside the pod and the pod's domain. A pod on the host's
// network has the host's name, as with the kubelet's runtimes.
func (m *Manager) hostname(pod *v1.Pod) (name, domain string, err error) {
	if !pod.Spec.HostNetwork {
		return kernelHostname(pod, m.o.ClusterDomain)
	}
	if name, err = os.Hostname(); err != nil {
		return "", "", fmt.Errorf("reading the host's name: %w", err)
	}
	return name, "", nil
}

// makeNamespaces makes the namespaces that the pod does not share with the host.
func (m *Manager) makeNamespaces(pod *v1.Pod, hostname string) (engine.Sandbox, error) {
	sb := engine.Sandbox{Hostname: hostname}
	uid := string(pod.UID)
	var kinds []namespaces.Kind
	if !pod.Spec.HostNetwork {
		sb.NetNS, sb.UTSNS = m.files.pin(uid, namespaces.Net).Path, m.files.pin(uid, namespaces.UTS).Path
		kinds = append(kinds, namespaces.Net, namespaces.UTS)
	}
	if !pod.Spec.HostIPC {
		sb.IPCNS = m.files.pin(uid, namespaces.IPC).Path
		kinds = append(kinds, namespaces.IPC)
	}
	if len(kinds) == 0 {
		return sb, nil
	}
	if err := os.MkdirAll(m.files.pins(uid), 0o711); err != nil {
		return sb, fmt.Errorf("creating the directory of namespaces: %w", err)
	}
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return sb, namespaces.Make(m.files.pins(uid), kinds, hostname)
	}
	var err error
	if sb.FirstID, err = m.allocateIDs(pod); err != nil {
		return sb, err
	}
	sb.UserNS = m.files.pin(uid, namespaces.User).Path
	return sb, namespaces.MakeMapped(m.files.pins(uid), kinds, hostname, int(sb.FirstID), engine.UserIDs)
}

// allocateIDs records a range of user and group IDs for the pod that no other pod has, and
// returns its first ID.
func (m *Manager) allocateIDs(pod *v1.Pod) (uint32, error) {
	ids, err := readIDRange("/etc")
	if err != nil {
		return 0, err
	}
	r, err := m.o.Records.UpdateAmong(pod.UID, func(r *record.Pod, others []*record.Pod) (err error) {
		if r.Pod == nil {
			r.Pod = pod
		}
		used := map[uint32]bool{}
		for _, o := range others {
			used[o.FirstUserID] = true
		}
		r.FirstUserID, err = ids.allocate(used)
		return err
	})
	if err != nil {
		return 0, err
	}
	return r.FirstUserID, nil
}

// annotations returns the network status as Multus writes it on a pod, nothing for a pod in a
// single network: its status says everything.
func annotations(networks []networkStatus) map[string]string {
	if len(networks) < 2 {
		return nil
	}
	text, _ := json.MarshalIndent(networks, "", "    ") // strings and lists of strings
	return map[string]string{statusAnnotation: string(text)}
}

// pins returns the sandbox's namespaces.
func pins(s engine.Sandbox) []namespaces.Pin {
	return []namespaces.Pin{
		{Kind: namespaces.Net, Path: s.NetNS},
		{Kind: namespaces.IPC, Path: s.IPCNS},
		{Kind: namespaces.UTS, Path: s.UTSNS},
		{Kind: namespaces.User, Path: s.UserNS},
	}
}

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
