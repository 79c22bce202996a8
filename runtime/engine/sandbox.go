package engine

// Sandbox is what the containers of a pod share. A namespace path is empty when the pod uses
// the host's.
type Sandbox struct {
	NetNS string `json:"netns,omitempty"`
	IPCNS string `json:"ipcns,omitempty"`
	UTSNS string `json:"utsns,omitempty"`
	// PIDNS is the pid namespace of a pod with shareProcessNamespace. It ends with its first
	// process, and so is not recorded.
	PIDNS string `json:"-"`
	// UserNS is the user namespace of a pod with hostUsers: false, which owns the others. Its
	// users and groups from 0 on are the host's from FirstID on, UserIDs of them.
	UserNS  string `json:"userns,omitempty"`
	FirstID uint32 `json:"firstID,omitempty"`
	// Hostname is the name that the containers see.
	Hostname string `json:"hostname"`
	// Domain is that of a pod with a subdomain.
	Domain string `json:"domain,omitempty"`
	// IPs are the pod's addresses, the primary one first. A pod on the host network has
	// the host's.
	IPs []string `json:"ips,omitempty"`
	// Annotations are what a cluster would have added to the pod: its network status, if it
	// has joined several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// BootID identifies the boot of the machine in which it was made. A reboot ends it.
	BootID string `json:"bootID,omitempty"`
}

// UserIDs is how many user IDs, and group IDs, a pod with a user namespace of its own has
// (kubeletconfig.DefaultKubeletUserNamespacesIDsPerPod).
const UserIDs = 65536
