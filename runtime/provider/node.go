package provider

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ node.NodeProvider = (*Node)(nil)

// statusInterval is how often the node's status is updated.
const statusInterval = time.Minute

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

// Node describes the machine to the cluster. It is virtual-kubelet's NodeProvider.
type Node struct {
	detect  func() (*v1.Node, error)
	options NodeOptions
	log     *slog.Logger
	last    *v1.Node
}

// NewNode returns the node that detect describes, as package admit does. It is described again every
// minute, since the machine may run short of memory or disk.
func NewNode(detect func() (*v1.Node, error), o NodeOptions, log *slog.Logger) (*Node, error) {
	n := &Node{detect: detect, options: o, log: log}
	machine, err := detect()
	if err == nil {
		n.last = n.registered(machine)
	}
	return n, err
}

// Object returns the node in the form in which it is registered: ready, with its addresses and all other
// conditions. It must not be called after NotifyNodeStatus.
func (n *Node) Object() *v1.Node { return n.last.DeepCopy() }

// Ping does nothing: the node is there as long as this process.
func (*Node) Ping(context.Context) error { return nil }

// NotifyNodeStatus calls the function with the node every minute, until ctx is done. It does not block.
func (n *Node) NotifyNodeStatus(ctx context.Context, notify func(*v1.Node)) {
	go func() {
		for tick := time.NewTicker(statusInterval); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			machine, err := n.detect()
			if err != nil {
				n.log.WarnContext(ctx, "could not describe the machine", "error", err)
				continue
			}
			n.last = n.registered(machine)
			notify(n.last.DeepCopy())
		}
	}()
}

// registered returns the machine in the form in which it is registered.
func (n *Node) registered(machine *v1.Node) *v1.Node {
	described, o := machine.DeepCopy(), n.options
	described.Status.Conditions = append(described.Status.Conditions, v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "runonce is ready",
	})
	now := metav1.Now()
	for i := range described.Status.Conditions {
		c := &described.Status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		if n.last == nil {
			continue
		}
		same := func(before v1.NodeCondition) bool { return before.Type == c.Type && before.Status == c.Status }
		if before := slices.IndexFunc(n.last.Status.Conditions, same); before >= 0 {
			c.LastTransitionTime = n.last.Status.Conditions[before].LastTransitionTime
		}
	}
	for _, ip := range o.Addresses {
		described.Status.Addresses = append(described.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	described.Status.Addresses = append(described.Status.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: described.Name})
	described.Status.DaemonEndpoints.KubeletEndpoint.Port = o.Port
	described.Status.NodeInfo.KubeletVersion, described.Status.NodeInfo.ContainerRuntimeVersion = o.Version, o.Runtime
	return described
}
