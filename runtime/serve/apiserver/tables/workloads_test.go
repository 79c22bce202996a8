package tables_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func template() v1.PodTemplateSpec {
	return v1.PodTemplateSpec{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i", Image: "init"}},
		Containers:     []v1.Container{{Name: "a", Image: "one:1"}, {Name: "b", Image: "two"}},
		NodeSelector:   map[string]string{"disk": "ssd", "arch": "arm"},
	}}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{
		MatchLabels:      map[string]string{"b": "1", "a": "2"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: metav1.LabelSelectorOpIn, Values: []string{"x", "y"}}},
	}
}

// invalid is a selector that cannot be formatted.
func invalid() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "?"}}}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	compareAll(t, map[string]*appsv1.Deployment{
		"empty":            {ObjectMeta: meta()},
		"empty selector":   {ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}},
		"invalid selector": {ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{Selector: invalid()}},
		"full": {
			ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(4)), Template: template(), Selector: selector()},
			Status: appsv1.DeploymentStatus{Replicas: 5, UpdatedReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1},
		},
	})
	compareAll(t, map[string]*appsv1.ReplicaSet{
		"empty":            {ObjectMeta: meta()},
		"empty selector":   {ObjectMeta: meta(), Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{}}},
		"invalid selector": {ObjectMeta: meta(), Spec: appsv1.ReplicaSetSpec{Selector: invalid()}},
		"full": {
			ObjectMeta: meta(), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(4)), Template: template(), Selector: selector()},
			Status: appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 2, AvailableReplicas: 1},
		},
	})
	compareAll(t, map[string]*v1.ReplicationController{
		"empty": {ObjectMeta: meta()},
		"full": {
			ObjectMeta: meta(), Spec: v1.ReplicationControllerSpec{Replicas: new(int32(4)), Template: new(template()), Selector: map[string]string{"b": "1", "a": "2"}},
			Status: v1.ReplicationControllerStatus{Replicas: 3, ReadyReplicas: 2, AvailableReplicas: 1},
		},
	})
	compareAll(t, map[string]*appsv1.StatefulSet{
		"empty": {ObjectMeta: meta()},
		"full": {
			ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(4)), Template: template(), Selector: selector()},
			Status: appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 2, AvailableReplicas: 1},
		},
	})
	compareAll(t, map[string]*appsv1.DaemonSet{
		"empty": {ObjectMeta: meta()},
		"full": {
			ObjectMeta: meta(), Spec: appsv1.DaemonSetSpec{Template: template(), Selector: selector()},
			Status: appsv1.DaemonSetStatus{
				DesiredNumberScheduled: 6, CurrentNumberScheduled: 5, NumberReady: 4, UpdatedNumberScheduled: 3, NumberAvailable: 2,
			},
		},
	})
}

func TestServices(t *testing.T) {
	t.Parallel()
	of := func(kind v1.ServiceType, ips ...string) *v1.Service {
		return &v1.Service{ObjectMeta: meta(), Spec: v1.ServiceSpec{Type: kind, ExternalIPs: ips}}
	}
	balanced := func(svc *v1.Service) *v1.Service {
		svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
			{IP: "9.9.9.9"}, {Hostname: "a-very-long-name.example.com"}, {IP: "1.2.3.4", Hostname: "h"}, {}, {IP: "9.9.9.9"},
		}
		return svc
	}
	named := of(v1.ServiceTypeExternalName)
	named.Spec.ExternalName = "example.com"
	compareAll(t, map[string]*v1.Service{
		"empty":                           of(""),
		"ClusterIP":                       of(v1.ServiceTypeClusterIP),
		"ClusterIP, external":             of(v1.ServiceTypeClusterIP, "1.1.1.1", "1.1.1.0"),
		"NodePort":                        of(v1.ServiceTypeNodePort),
		"NodePort, external":              of(v1.ServiceTypeNodePort, "1.1.1.1"),
		"LoadBalancer":                    of(v1.ServiceTypeLoadBalancer),
		"LoadBalancer, external":          of(v1.ServiceTypeLoadBalancer, "1.1.1.1"),
		"LoadBalancer, balanced":          balanced(of(v1.ServiceTypeLoadBalancer)),
		"LoadBalancer, balanced external": balanced(of(v1.ServiceTypeLoadBalancer, "1.1.1.1", "1.1.1.0")),
		"ExternalName":                    named,
		"full": {ObjectMeta: meta(), Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "fd00::1"},
			Selector: map[string]string{"b": "1", "a": "2"},
			Ports:    []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}, {Port: 53, NodePort: 30053, Protocol: v1.ProtocolUDP}},
		}},
	})
}
