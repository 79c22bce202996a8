package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
)

// ErrNoMetrics says that the cluster does not know what its pods use.
var ErrNoMetrics = errors.New("the cluster does not have the metrics API (metrics.k8s.io); metrics-server provides it")

// podMetrics are those of pods in the metrics API (k8s.io/metrics/pkg/apis/metrics/v1beta1 PodMetricsList).
type podMetrics struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Containers []struct {
			Name  string          `json:"name"`
			Usage v1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// Usage returns what the pods use, by namespace and name: those of which the cluster knows it, as of the last minute.
// The error is ErrNoMetrics if it never knows.
func (p *Pods) Usage(ctx context.Context, pods []*v1.Pod) (map[types.NamespacedName]podusage.Pod, error) {
	wanted, namespaces := map[types.NamespacedName]*v1.Pod{}, map[string]bool{}
	for _, pod := range pods {
		wanted[podspec.NameOf(pod)], namespaces[pod.Namespace] = pod, true
	}
	usage := map[types.NamespacedName]podusage.Pod{}
	for namespace := range namespaces {
		list, err := p.metrics(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			name := types.NamespacedName{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name}
			pod := wanted[name]
			if pod == nil {
				continue
			}
			of := podusage.Pod{Containers: []podusage.Container{}}
			for _, def := range podspec.Containers(pod) {
				for _, c := range item.Containers {
					if c.Name == def.Name {
						used := podusage.Usage{CPUMillicores: c.Usage.Cpu().MilliValue(), MemoryBytes: c.Usage.Memory().Value()}
						of.Containers = append(of.Containers, podusage.Container{Name: c.Name, Usage: used})
					}
				}
			}
			of.Usage = of.Sum()
			usage[name] = of
		}
	}
	return usage, nil
}

// metrics asks for those of our pods in a namespace.
func (p *Pods) metrics(ctx context.Context, namespace string) (list podMetrics, err error) {
	var data []byte
	err = p.c.limited(ctx, func() (err error) {
		// The client knows no type of this API, and asks for protobuf otherwise.
		data, err = p.c.rest.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces/"+namespace+"/pods").
			Param("labelSelector", labelManaged+"=true").SetHeader("Accept", "application/json").Do(ctx).Raw()
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return list, ErrNoMetrics
	case err != nil:
		return list, fmt.Errorf("asking the metrics API for what pods use: %w", cause(err))
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return list, fmt.Errorf("reading the answer of the metrics API: %w", err)
	}
	return list, nil
}
