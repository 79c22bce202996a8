package podspec

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDependents(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name, on, groups string) *v1.Pod {
		annotations := map[string]string{AnnotationGroups: groups}
		if on != "" {
			annotations[AnnotationDependsOn] = on
		}
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	}
	for _, c := range []struct {
		name string
		pods []*v1.Pod
		want string
	}{
		{name: "none", want: "[]"},
		{name: "a chain", pods: []*v1.Pod{pod("a", "web", "api", ""), pod("a", "api", "db:running", ""), pod("a", "db", "", "")}, want: "[[] [0] [1]]"},
		{name: "groups", pods: []*v1.Pod{pod("a", "web", "db", ""), pod("a", "db-0", "", "db,x"), pod("a", "db-1", "", "db"), pod("b", "db-0", "", "db")}, want: "[[] [0] [0] []]"},
		{name: "a pod before a group", pods: []*v1.Pod{pod("a", "web", "db", ""), pod("a", "db", "", ""), pod("a", "db-0", "", "db")}, want: "[[] [0] []]"},
		{name: "other namespaces", pods: []*v1.Pod{pod("a", "web", "b/db", ""), pod("a", "db", "", ""), pod("b", "db", "", "")}, want: "[[] [] [0]]"},
		{name: "not there, or wrong", pods: []*v1.Pod{pod("a", "web", "gone, :, db:soon, api", ""), pod("a", "db", "", ""), pod("a", "api", "", "")}, want: "[[] [] [0]]"},
		{name: "a cycle is cut", pods: []*v1.Pod{pod("a", "x", "y", ""), pod("a", "y", "z", ""), pod("a", "z", "x", "")}, want: "[[] [0] [1]]"},
		{name: "on itself", pods: []*v1.Pod{pod("a", "x", "x, y", "y"), pod("a", "y", "", "")}, want: "[[] [0]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, fmt.Sprint(Dependents(c.pods))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
