package tables

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Labels that give a role to a node: the name of the first ends with the role, the second has it as its value.
const (
	labelRolePrefix = "node-role.kubernetes.io/"
	labelRole       = "kubernetes.io/role"
)

// nodeCells follows printNode.
func nodeCells(node *v1.Node, now time.Time) []any {
	info := node.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		node.Name,
		nodeStatus(node),
		cmp.Or(strings.Join(nodeRoles(node.Labels), ","), none),
		age(node, now),
		info.KubeletVersion,
		nodeAddress(node, v1.NodeInternalIP),
		nodeAddress(node, v1.NodeExternalIP),
		cmp.Or(info.OSImage, unknown),
		kernel,
		cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeStatus(node *v1.Node) string {
	status := "Unknown"
	for _, c := range node.Status.Conditions {
		if c.Type != v1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == v1.ConditionTrue {
			status = "Ready"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles that labels give to a node, sorted (findNodeRoles).
func nodeRoles(labels map[string]string) []string {
	roles := map[string]bool{}
	for key, value := range labels {
		role, ok := strings.CutPrefix(key, labelRolePrefix)
		if !ok && key == labelRole {
			role, ok = value, true
		}
		if ok && role != "" {
			roles[role] = true
		}
	}
	return slices.Sorted(maps.Keys(roles))
}

// nodeAddress returns the first address of the type.
func nodeAddress(node *v1.Node, of v1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == of {
			return a.Address
		}
	}
	return none
}
