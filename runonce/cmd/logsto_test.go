package cmd

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLogName: the file has a name that fits, and pods with other long names have others.
func TestLogName(t *testing.T) {
	t.Parallel()
	pod := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	long, container := strings.Repeat("a", 215), strings.Repeat("c", 63)
	fits := strings.Repeat("a", 200-len("ns__main"))
	for _, tt := range []struct{ pod, container, want string }{
		{"p", "main", "ns_p_main"},
		{fits, "main", "ns_" + fits + "_main"},
		{fits + "a", "main", "ns_" + fits[:len(fits)-9] + "-33f93a98_main"},
		{long, container, "ns_" + long[:124] + "-cc78a334_" + container},
	} {
		got := logName(pod(tt.pod), tt.container)
		if got != tt.want || len(got) > 200 {
			t.Errorf("%d bytes: %s, want %s", len(got), got, tt.want)
		}
	}
	if logName(pod(long+"1"), "main") == logName(pod(long+"2"), "main") {
		t.Error("two pods have the same file")
	}
}
