package network

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
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
		return podHostname(pod, m.o.ClusterDomain)
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

// podHostname returns the name inside the pod and the pod's domain.
func podHostname(pod *v1.Pod, clusterDomain string) (name, domain string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil && (*o == "" || len(*o) > podspec.MaxHostname) {
		return "", "", failure.Permanentf("spec.hostnameOverride %q: must have 1 to %d characters", *o, podspec.MaxHostname)
	}
	host, domain := podspec.Hostname(pod, clusterDomain)
	switch name = podspec.KernelHostname(pod, clusterDomain); {
	case host == "":
		return "", "", failure.Permanentf("no host name can be made from the pod's name %q", pod.Name)
	case len(name) > podspec.MaxHostname:
		return "", "", failure.Permanentf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			name, podspec.MaxHostname, len(name))
	}
	return name, domain, nil
}
