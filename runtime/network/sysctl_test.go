package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func withSysctls(spec v1.PodSpec, names ...string) *v1.Pod {
	pod := &v1.Pod{Spec: spec}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{}
	for _, n := range names {
		pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: n, Value: "1"})
	}
	return pod
}

func TestKernelParameters(t *testing.T) {
	t.Parallel()
	got, err := kernelParameters(withSysctls(v1.PodSpec{},
		"net.ipv4.tcp_syncookies", "net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding",
		"kernel.shm_rmid_forced", "kernel.sem", "kernel.msgmax", "fs.mqueue.msg_max"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"net/ipv4/tcp_syncookies", "net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding",
		"kernel/shm_rmid_forced", "kernel/sem", "kernel/msgmax", "fs/mqueue/msg_max",
	}
	paths := make([]string, 0, len(got))
	for _, s := range got {
		paths = append(paths, s.path)
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	if none, err := kernelParameters(&v1.Pod{}); none != nil || err != nil {
		t.Errorf("without a security context: %v, %v", none, err)
	}
}

func TestKernelParametersRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sysctl, want string
		spec               v1.PodSpec
	}{
		{"host's", "vm.swappiness", "not namespaced", v1.PodSpec{}},
		{"looks like ipc", "kernel.semaphores", "not namespaced", v1.PodSpec{}},
		{"unknown to Kubernetes", "kernel.msg_next_id", "not namespaced", v1.PodSpec{}},
		{"host network", "net.ipv4.tcp_syncookies", "spec.hostNetwork", v1.PodSpec{HostNetwork: true}},
		{"host ipc", "kernel.shmmax", "spec.hostIPC", v1.PodSpec{HostIPC: true}},
		{"way out", "net/../kernel/core_pattern", "not the name", v1.PodSpec{}},
		{"way out by dots", "net.//.kernel.core_pattern", "not the name", v1.PodSpec{}},
		{"absolute", "/net/ipv4/tcp_syncookies", "not the name", v1.PodSpec{}},
		{"empty", "", "not the name", v1.PodSpec{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := kernelParameters(withSysctls(tt.spec, tt.sysctl))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "spec.securityContext.sysctls[0]") {
				t.Errorf("error %v, want one with %q and the field", err, tt.want)
			}
		})
	}
}
