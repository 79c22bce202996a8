package volume

import (
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// devShm is where POSIX shared memory lives: it belongs to the ipc namespace, which the
// containers of a pod share, and so must this.
const devShm = "/dev/shm"

// shmOptions make it as large as CRI runtimes do.
const shmOptions = "mode=1777,size=65536k"

// shm mounts the pod's shared memory. Pods in the host's ipc namespace use the host's.
func (m *Manager) shm(pod *v1.Pod) error {
	if pod.Spec.HostIPC {
		return nil
	}
	dir := m.dir(pod, shmDir)
	if err := os.MkdirAll(dir, podDirMode); err != nil {
		return err
	}
	return m.mountOnce(dir, filesystem{kind: "tmpfs", options: shmOptions, flags: unix.MS_NOEXEC})
}

func (m *Manager) shmMount(pod *v1.Pod) specs.Mount {
	source := m.dir(pod, shmDir)
	if pod.Spec.HostIPC {
		source = devShm
	}
	return specs.Mount{Destination: devShm, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", "rw"}}
}
