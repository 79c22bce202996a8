package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestCameFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, source, origin string
		want                 bool
	}{
		{"/a/web.yaml", "web.yaml:1", "/a/web.yaml", true},
		{"/a/web.yaml", "web.yaml:1", "/a", true},
		{"/a/b/web.yaml", "web.yaml:1", "/a", true},
		{"/a/web.yaml", "web.yaml:1", "/", true},
		{"/ab/web.yaml", "web.yaml:1", "/a", false},
		{"/a/web.yaml", "web.yaml:1", "/a/web.yaml.old", false},
		{"/a/web.yaml", "/b/web.yaml:1", "/b", false},
		{"-", "<stdin>:1", "-", true},
		{"-", "<stdin>:1", "/", false},
		{"https://example.com/pods/web.yaml", "https://example.com/pods/web.yaml:1", "https://example.com/pods/web.yaml", true},
		{"https://example.com/pods/web.yaml", "https://example.com/pods/web.yaml:1", "https://example.com/pods", false},
		{"", "/a/web.yaml:7", "/a", false},
	} {
		pod := &v1.Pod{}
		pod.Annotations = map[string]string{AnnotationPath: c.path, AnnotationSource: c.source}
		if got := CameFrom(pod, c.origin); got != c.want {
			t.Errorf("path %q, source %q, origin %q: %t", c.path, c.source, c.origin, got)
		}
	}
}
