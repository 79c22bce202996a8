package ocispec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSeccompProfile(t *testing.T) {
	t.Parallel()
	yes := true
	profile := func(kind v1.SeccompProfileType) *v1.SeccompProfile { return &v1.SeccompProfile{Type: kind} }
	tests := []struct {
		name string
		pod  *v1.PodSecurityContext
		own  *v1.SecurityContext
		host Host
		want v1.SeccompProfileType
	}{
		{name: "unset", want: v1.SeccompProfileTypeUnconfined},
		{name: "unset with a default", host: Host{SeccompDefault: true}, want: v1.SeccompProfileTypeRuntimeDefault},
		{
			name: "Unconfined in spite of a default", host: Host{SeccompDefault: true},
			own: &v1.SecurityContext{SeccompProfile: profile(v1.SeccompProfileTypeUnconfined)}, want: v1.SeccompProfileTypeUnconfined,
		},
		{name: "privileged in spite of a default", host: Host{SeccompDefault: true}, own: &v1.SecurityContext{Privileged: &yes}, want: v1.SeccompProfileTypeUnconfined},
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
			if got := tt.host.SeccompProfile(pod, &v1.Container{SecurityContext: tt.own}).Type; got != tt.want {
				t.Errorf("SeccompProfile = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAppArmorName(t *testing.T) {
	t.Parallel()
	yes, name := true, "own"
	profile := func(kind v1.AppArmorProfileType) *v1.AppArmorProfile { return &v1.AppArmorProfile{Type: kind} }
	local := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	tests := []struct {
		name    string
		pod     *v1.AppArmorProfile
		own     *v1.SecurityContext
		without bool // AppArmor on the machine
		want    string
	}{
		{name: "unset", want: DefaultAppArmor},
		{name: "unset without AppArmor", without: true},
		{name: "unset and privileged", own: &v1.SecurityContext{Privileged: &yes}},
		{name: "default", pod: profile(v1.AppArmorProfileTypeRuntimeDefault), want: DefaultAppArmor},
		{name: "default and privileged", pod: profile(v1.AppArmorProfileTypeRuntimeDefault), own: &v1.SecurityContext{Privileged: &yes}},
		{name: "unconfined", pod: profile(v1.AppArmorProfileTypeUnconfined)},
		{name: "localhost", pod: local, want: "own"},
		{name: "localhost and privileged", pod: local, own: &v1.SecurityContext{Privileged: &yes}, want: "own"},
		{
			name: "container over pod", pod: local, own: &v1.SecurityContext{AppArmorProfile: profile(v1.AppArmorProfileTypeRuntimeDefault)},
			want: DefaultAppArmor,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{AppArmorProfile: tt.pod}}}
			if got := AppArmorName(pod, &v1.Container{SecurityContext: tt.own}, !tt.without); got != tt.want {
				t.Errorf("AppArmorName = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSELinuxLabels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		pod, own      *v1.SELinuxOptions
		process, file string
	}{
		{name: "unset"},
		{
			name: "level", pod: &v1.SELinuxOptions{Level: "s0:c1,c2"},
			process: "system_u:system_r:container_t:s0:c1,c2", file: "system_u:object_r:container_file_t:s0:c1,c2",
		},
		{
			name: "container over pod", pod: &v1.SELinuxOptions{Level: "s0:c1,c2"},
			own:     &v1.SELinuxOptions{User: "u", Role: "r", Type: "t"},
			process: "u:r:t:s0", file: "system_u:object_r:container_file_t:s0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SELinuxOptions: tt.pod}}}
			process, file := SELinuxLabels(pod, &v1.Container{SecurityContext: &v1.SecurityContext{SELinuxOptions: tt.own}})
			if process != tt.process || file != tt.file {
				t.Errorf("labels %q, %q, want %q, %q", process, file, tt.process, tt.file)
			}
		})
	}
}
