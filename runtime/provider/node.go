package provider

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeOptions are what the machine does not tell of a node.
type NodeOptions struct {
	// Addresses are those of the machine, by which the API server reaches Port. The first one is
	// the node's internal address.
	Addresses []string
	// Port is where the logs and the streams of containers are served; 0 for nowhere.
	Port int32
	// Version is the version of Kubernetes that the node claims, such as v1.37.0; Runtime is that
	// of the container runtime, such as containerd://2.4.2.
	Version, Runtime string
}

// RegisteredNode returns the node, as package admit describes the machine, in the form in which it
// is registered: ready, with its addresses and all other conditions.
func RegisteredNode(machine *v1.Node, o NodeOptions) *v1.Node {
	n := machine.DeepCopy()
	now := metav1.Now()
	n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "runonce is ready",
	})
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime, n.Status.Conditions[i].LastTransitionTime = now, now
	}
	for _, ip := range o.Addresses {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: n.Name})
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = o.Port
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.ContainerRuntimeVersion = o.Version, o.Runtime
	return n
}
