package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSeccompType(t *testing.T) {
	t.Parallel()
	yes := true
	profile := func(kind v1.SeccompProfileType) *v1.SeccompProfile { return &v1.SeccompProfile{Type: kind} }
	tests := []struct {
		name string
		pod  *v1.PodSecurityContext
		own  *v1.SecurityContext
		want v1.SeccompProfileType
	}{
		{name: "unset", want: v1.SeccompProfileTypeUnconfined},
		{name: "pod", pod: &v1.PodSecurityContext{SeccompProfile: profile(v1.SeccompProfileTypeRuntimeDefault)}, want: v1.SeccompProfileTypeRuntimeDefault},
		{
			name: "container over pod", pod: &v1.PodSecurityContext{SeccompProfile: profile(v1.SeccompProfileTypeRuntimeDefault)},
			own: &v1.SecurityContext{SeccompProfile: profile(v1.SeccompProfileTypeUnconfined)}, want: v1.SeccompProfileTypeUnconfined,
		},
		{
			name: "privileged has none", pod: &v1.PodSecurityContext{SeccompProfile: profile(v1.SeccompProfileTypeRuntimeDefault)},
			own: &v1.SecurityContext{Privileged: &yes}, want: v1.SeccompProfileTypeUnconfined,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: tt.pod}}
			if got := seccompType(pod, &v1.Container{SecurityContext: tt.own}); got != tt.want {
				t.Errorf("seccompType = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReadSeccomp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"deny.json": `{"defaultAction":"SCMP_ACT_ERRNO"}`, "bad.json": `{"defaultAction":`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readSeccomp(dir, "deny.json")
	if err != nil || got.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("profile = %+v, %v", got, err)
	}
	for _, name := range []string{"bad.json", "none.json", "../" + filepath.Base(dir) + "/deny.json"} {
		_, err := readSeccomp(dir, name)
		if err == nil || !permanent(err) || reasonOf(err, "") != ReasonCreateError {
			t.Errorf("%s: %v, want a permanent %s", name, err, ReasonCreateError)
		}
	}
	if _, err := readSeccomp(dir, "none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v: does not end in the cause", err)
	}
}
