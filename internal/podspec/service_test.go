package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestSelects(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{"app": "web", "tier": "", "x": "y"}}}
	for _, tt := range []struct {
		name, namespace string
		spec            v1.ServiceSpec
		want            bool
	}{
		{"all labels", "a", v1.ServiceSpec{Selector: map[string]string{"app": "web", "tier": ""}}, true},
		{"headless", "a", v1.ServiceSpec{ClusterIP: v1.ClusterIPNone, Selector: map[string]string{"app": "web"}}, true},
		{"another value", "a", v1.ServiceSpec{Selector: map[string]string{"app": "web", "x": "z"}}, false},
		{"an empty value is not none", "a", v1.ServiceSpec{Selector: map[string]string{"none": ""}}, false},
		{"another namespace", "b", v1.ServiceSpec{Selector: map[string]string{"app": "web"}}, false},
		{"no selector", "a", v1.ServiceSpec{}, false},
		{"empty selector", "a", v1.ServiceSpec{Selector: map[string]string{}}, false},
		{"external name", "a", v1.ServiceSpec{Type: v1.ServiceTypeExternalName, Selector: map[string]string{"app": "web"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace}, Spec: tt.spec}
			if got := Selects(s, pod); got != tt.want {
				t.Error(got)
			}
		})
	}
}

func TestTargetPort(t *testing.T) {
	t.Parallel()
	always := v1.ContainerRestartPolicyAlways
	ports := func(number int32, protocol v1.Protocol) []v1.ContainerPort {
		return []v1.ContainerPort{{Name: "other", ContainerPort: 9, Protocol: protocol}, {Name: "p", ContainerPort: number, Protocol: protocol}}
	}
	pod := func(containers, inits []v1.Container) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: containers, InitContainers: inits}}
	}
	first := v1.Container{Ports: ports(1, v1.ProtocolTCP)}
	sidecar := v1.Container{Ports: ports(2, v1.ProtocolTCP), RestartPolicy: &always}
	named := v1.ServicePort{Protocol: v1.ProtocolTCP, TargetPort: intstr.FromString("p")}
	for _, tt := range []struct {
		name string
		port v1.ServicePort
		pod  *v1.Pod
		want int32
	}{
		{"a number need not be declared", v1.ServicePort{TargetPort: intstr.FromInt32(80)}, pod(nil, nil), 80},
		{"a name", named, pod([]v1.Container{{}, first}, nil), 1},
		{"containers come before sidecars", named, pod([]v1.Container{first}, []v1.Container{sidecar}), 1},
		{"of a sidecar", named, pod([]v1.Container{{}}, []v1.Container{sidecar}), 2},
		{"not of an init container", named, pod([]v1.Container{{}}, []v1.Container{first}), 0},
		{"of the same protocol", named, pod([]v1.Container{{Ports: ports(3, v1.ProtocolUDP)}, first}, nil), 1},
		{"of another protocol", named, pod([]v1.Container{{Ports: ports(3, v1.ProtocolUDP)}}, nil), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, ok := TargetPort(tt.port, tt.pod); got != tt.want || ok != (tt.want > 0) {
				t.Error(got, ok)
			}
		})
	}
}
