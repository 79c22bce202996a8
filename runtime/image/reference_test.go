package image

import (
	"strconv"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/failure"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, tt := range []struct{ name, in, want string }{
		{"familiar", "busybox", "docker.io/library/busybox:latest"},
		{"tag", "busybox:1.36", "docker.io/library/busybox:1.36"},
		{"user", "me/app", "docker.io/me/app:latest"},
		{"old Docker Hub", "index.docker.io/me/app:1", "docker.io/me/app:1"},
		{"registry", "registry.example/app:1", "registry.example/app:1"},
		{"registry with port", "registry.example:5000/app", "registry.example:5000/app:latest"},
		{"localhost", "localhost/app:1", "localhost/app:1"},
		{"digest", "busybox" + digest, "docker.io/library/busybox" + digest},
		{"tag and digest", "busybox:1.36" + digest, "docker.io/library/busybox" + digest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Normalize(tt.in)
			if err != nil || got != tt.want {
				t.Errorf("Normalize(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestNormalizeRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", " ", "Upper", "me/Upper", "a b", "-x", "busybox:", "busybox@sha256:12", "https://registry.example/app",
		strings.Repeat("a", 64), "a/" + strings.Repeat("b", 300), "{{ .Values.image }}",
	} {
		_, err := Normalize(in)
		if !failure.IsPermanent(err) || failure.Reason(err, "") != "InvalidImageName" || !strings.Contains(err.Error(), strconv.Quote(in)) {
			t.Errorf("Normalize(%q): error %v, want InvalidImageName", in, err)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("busybox")
	f.Add("registry.example:5000/a/b:c@sha256:" + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, in string) {
		full, err := Normalize(in)
		if err != nil {
			return
		}
		again, err := Normalize(full)
		if err != nil || again != full {
			t.Errorf("Normalize(%q) = %q, but Normalize of that = %q, %v", in, full, again, err)
		}
	})
}
