package cluster

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Services returns the Services of the cluster that choose the pod, by name.
func (p *Pods) Services(ctx context.Context, pod *v1.Pod) ([]*v1.Service, error) {
	list := &v1.ServiceList{}
	err := p.c.limited(ctx, func() error {
		return p.c.rest.Get().Namespace(pod.Namespace).Resource("services").Do(ctx).Into(list)
	})
	if err != nil {
		return nil, requestError("looking for Services", err)
	}
	var chosen []*v1.Service
	for i := range list.Items {
		if svc := &list.Items[i]; podspec.Selects(svc, pod) {
			chosen = append(chosen, svc)
		}
	}
	slices.SortFunc(chosen, func(a, b *v1.Service) int { return strings.Compare(a.Name, b.Name) })
	return chosen, nil
}
