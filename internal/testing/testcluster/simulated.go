package testcluster

import (
	"context"
	"fmt"
	"os"
)

const (
	// PodsPerNode is how many pods a simulated node takes, as many as a kubelet does by default.
	PodsPerNode = 110
	// simulatedNode has the label by which pods choose the simulated nodes, and a taint that keeps
	// others away.
	simulatedNode = `
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {simulated: "true"}}
spec: {taints: [{key: simulated, effect: NoSchedule}]}
`
	// simulatedStages are how simulated objects change: nodes are ready, pods run until they are deleted.
	simulatedStages = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {type: {{ .type | Quote }}, status: {{ .status | Quote }}, reason: {{ .reason | Quote }}, lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: true, restartCount: 0, state: {running: {startedAt: {{ $now | Quote }}}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true}
`
	simulatedStatus = `
apiVersion: v1
kind: Node
metadata: {name: %[1]s}
status: {capacity: {cpu: 32, memory: 256Gi, pods: %[2]d}, allocatable: {cpu: 32, memory: 256Gi, pods: %[2]d}}
`
)

// Simulate adds nodes whose pods are said to run without running, by kwok.
func (c *Cluster) Simulate(ctx context.Context, nodes int) error {
	config, err := c.Kubeconfig(Admin)
	if err != nil {
		return err
	}
	stages := c.file("stages.yaml")
	if err := os.WriteFile(stages, []byte(simulatedStages), 0o600); err != nil {
		return err
	}
	c.simulator, err = c.start(ctx, "kwok", "--kubeconfig", config, "--config", stages, "--server-address", "",
		"--manage-all-nodes=false", "--manage-nodes-with-label-selector", "simulated=true", "--node-lease-duration-seconds", "40")
	if err != nil {
		return err
	}
	for i := range nodes {
		name := fmt.Sprintf("simulated-%d", i)
		if err := c.Apply(ctx, "/api/v1/nodes/"+name, fmt.Sprintf(simulatedNode, name)); err != nil {
			return err
		}
		if err := c.Apply(ctx, "/api/v1/nodes/"+name+"/status", fmt.Sprintf(simulatedStatus, name, PodsPerNode)); err != nil {
			return err
		}
	}
	return nil
}
