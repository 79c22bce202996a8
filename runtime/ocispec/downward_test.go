package ocispec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func downwardContext() Context {
	return Context{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Namespace: "shop", UID: "u1",
				Labels: map[string]string{"b": "2", "a": "1", "example.com/c": "q\"x"}, Annotations: map[string]string{"UPPER/Key": "v"},
			},
			Spec: v1.PodSpec{
				Containers: []v1.Container{
					{Name: "main", Resources: v1.ResourceRequirements{
						Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1100m"), v1.ResourceMemory: resource.MustParse("100M")},
						Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
					}},
					{Name: "free"},
				},
				InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{
					Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), "hugepages-2Mi": resource.MustParse("6Mi")},
				}}},
			},
		},
		Node: Node{Name: "node-1", Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("3900m"), v1.ResourceMemory: resource.MustParse("7Gi"), v1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
		}},
	}
}

func TestFieldValue(t *testing.T) {
	t.Parallel()
	s := downwardContext()
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u1",
		"metadata.labels":                       "a=\"1\"\nb=\"2\"\nexample.com/c=\"q\\\"x\"",
		"metadata.annotations":                  "UPPER/Key=\"v\"",
		"metadata.labels['a']":                  "1",
		"metadata.labels['no']":                 "",
		"spec.nodeName":                         "node-1",
		"status.podIP":                          "",
		"status.hostIPs":                        "",
		"spec.serviceAccountName":               "default",
		"metadata.labels['example.com/c']":      "q\"x",
		"metadata.annotations['UPPER/Key']":     "v",
		"metadata.annotations['example.com/x']": "",
	} {
		if got, err := s.fieldValue(path); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"status.phase":             "unsupported fieldPath: status.phase",
		"":                         "unsupported fieldPath: ",
		"metadata.labels['a'":      "unsupported fieldPath: metadata.labels['a'",
		"metadata.name['a']":       `fieldPath "metadata.name['a']" does not support subscript`,
		"metadata.labels['a b']":   "invalid key subscript in metadata.labels['a b']: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
		"spec.containers[0].image": "unsupported fieldPath: spec.containers[0].image",
	} {
		if got, err := s.fieldValue(path); err == nil || err.Error() != want {
			t.Errorf("%s = %q, %v, want %s", path, got, err, want)
		}
	}
	s.Pod.Spec.ServiceAccountName = "robot"
	if got, err := s.fieldValue("spec.serviceAccountName"); err != nil || got != "robot" {
		t.Errorf("spec.serviceAccountName = %q, %v", got, err)
	}
	s.Pod.Spec.NodeName = "other"
	if got, err := s.fieldValue("spec.nodeName"); err != nil || got != "other" {
		t.Errorf("spec.nodeName = %q, %v", got, err)
	}
	if _, err := MetadataField(s.Pod, "status.podIP"); err == nil {
		t.Error("volumes may name status.podIP")
	}
}

func TestResourceField(t *testing.T) {
	t.Parallel()
	s := downwardContext()
	level := downwardContext()
	level.Pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	tests := []struct {
		context                      Context
		container, resource, divisor string
		want                         string
		wantErr                      string
	}{
		{context: s, resource: "limits.cpu", want: "2"},
		{context: s, resource: "limits.cpu", divisor: "1m", want: "1100"},
		{context: s, resource: "limits.cpu", divisor: "100m", want: "11"},
		{context: s, resource: "requests.cpu", want: "1"},
		{context: s, resource: "limits.memory", want: "100000000"},
		{context: s, resource: "limits.memory", divisor: "1Mi", want: "96"},
		{context: s, resource: "requests.memory", want: "0"},
		{context: s, resource: "limits.ephemeral-storage", divisor: "1Gi", want: "10"},
		{context: s, container: "free", resource: "limits.cpu", want: "4"},
		{context: s, container: "free", resource: "limits.memory", divisor: "1Gi", want: "7"},
		{context: s, container: "free", resource: "requests.cpu", want: "0"},
		{context: s, container: "init", resource: "limits.cpu", want: "3"},
		{context: s, container: "init", resource: "limits.hugepages-2Mi", divisor: "1Mi", want: "6"},
		{context: s, container: "free", resource: "limits.hugepages-2Mi", want: "0"},
		{context: level, container: "free", resource: "limits.cpu", want: "2"},
		{context: level, container: "free", resource: "limits.memory", divisor: "1Gi", want: "7"},
		{context: s, container: "none", resource: "limits.cpu", wantErr: "container none not found"},
		{context: s, resource: "limits.gpu", wantErr: "unsupported container resource: limits.gpu"},
		{context: s, resource: "cpu", wantErr: "unsupported container resource: cpu."},
		{context: s, resource: "usage.cpu", wantErr: "unsupported container resource: usage.cpu"},
	}
	for _, tt := range tests {
		sel := &v1.ResourceFieldSelector{ContainerName: tt.container, Resource: tt.resource}
		if tt.divisor != "" {
			sel.Divisor = resource.MustParse(tt.divisor)
		}
		got, err := tt.context.ResourceField(sel, &tt.context.Pod.Spec.Containers[0])
		if tt.wantErr != "" {
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%s %s: error %v, want %s", tt.container, tt.resource, err, tt.wantErr)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s %s / %s = %q, %v, want %q", tt.container, tt.resource, tt.divisor, got, err, tt.want)
		}
	}
	if _, err := s.ResourceField(&v1.ResourceFieldSelector{Resource: "limits.cpu"}, nil); err == nil {
		t.Error("a volume need not name a container")
	}
}
