package serve

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

// Pods are those of this machine, as package kubelet wants them.
type Pods struct {
	Runtime *runtime.Pods
	// Probe says that nobody else in this process probes the pods, so that it has to be found out whether they are ready.
	Probe bool
}

// GetPods returns the pods with their status.
func (p Pods) GetPods(ctx context.Context) ([]*v1.Pod, error) {
	if p.Probe {
		return p.Runtime.LookAll(ctx)
	}
	return p.Runtime.List(ctx)
}

// FindPod returns a pod with its status, if there is one.
func (p Pods) FindPod(ctx context.Context, namespace, name string) (*v1.Pod, bool, error) {
	return p.Runtime.Find(ctx, namespace, name)
}
