package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// serviceCells follows printService.
func serviceCells(svc *v1.Service, now time.Time) []any {
	ip := none
	if len(svc.Spec.ClusterIPs) > 0 {
		ip = svc.Spec.ClusterIPs[0]
	}
	return []any{
		svc.Name,
		string(svc.Spec.Type),
		ip,
		externalIPs(svc),
		cmp.Or(servicePorts(svc.Spec.Ports), none),
		age(svc, now),
		labels.FormatLabels(svc.Spec.Selector),
	}
}

// externalIPs are where a Service can be reached from outside of the cluster (getServiceExternalIP).
func externalIPs(svc *v1.Service) string {
	switch svc.Spec.Type {
	case v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort:
		return cmp.Or(strings.Join(svc.Spec.ExternalIPs, ","), none)
	case v1.ServiceTypeLoadBalancer:
		all := append(loadBalancers(svc.Status.LoadBalancer.Ingress), svc.Spec.ExternalIPs...)
		return cmp.Or(strings.Join(all, ","), "<pending>")
	case v1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	}
	return unknown
}

// loadBalancers returns the addresses, or else the names, of load balancers, sorted (loadBalancerStatusStringer).
func loadBalancers(ingress []v1.LoadBalancerIngress) []string {
	all := make([]string, 0, len(ingress))
	for _, in := range ingress {
		if address := cmp.Or(in.IP, in.Hostname); address != "" {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// servicePorts lists the ports, with those of nodes that lead to them (makePortString).
func servicePorts(ports []v1.ServicePort) string {
	all := make([]string, 0, len(ports))
	for _, p := range ports {
		number := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			number += ":" + strconv.Itoa(int(p.NodePort))
		}
		all = append(all, fmt.Sprintf("%s/%s", number, p.Protocol))
	}
	return strings.Join(all, ",")
}
