package enginetest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podusage"
	machine "github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// Sandboxes hands out addresses without touching the machine.
type Sandboxes struct {
	// Err, when set, may return an error for a pod.
	Err func(pod *v1.Pod) error
	// RemoveErr, when set, may return an error when a pod's sandbox is removed.
	RemoveErr func(pod *v1.Pod) error
	// Records, if set, gets the sandboxes, as from package network.
	Records *record.Store

	mu   sync.Mutex
	pods map[types.UID]engine.Sandbox
	next int
}

// Ensure gives the pod an address of 192.0.2.0/24, a range kept for examples.
func (s *Sandboxes) Ensure(_ context.Context, pod *v1.Pod, _ record.Lock) (engine.Sandbox, error) {
	if s.Err != nil {
		if err := s.Err(pod); err != nil {
			return engine.Sandbox{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sandbox, ok := s.pods[pod.UID]; ok {
		return sandbox, nil
	}
	if s.pods == nil {
		s.pods = map[types.UID]engine.Sandbox{}
	}
	sandbox := engine.Sandbox{Hostname: pod.Name, IPs: []string{"192.0.2.1"}}
	if !pod.Spec.HostNetwork {
		s.next++
		sandbox.IPs = []string{fmt.Sprintf("192.0.2.%d", 1+s.next)}
		sandbox.NetNS = "/run/ns/" + string(pod.UID) + "/net"
	}
	s.pods[pod.UID] = sandbox
	return sandbox, s.record(pod.UID, &sandbox)
}

func (s *Sandboxes) record(uid types.UID, sandbox *engine.Sandbox) error {
	if s.Records == nil {
		return nil
	}
	_, err := s.Records.Update(uid, func(r *record.Pod) error {
		if r.Sandbox, r.Ready = sandbox, false; sandbox != nil {
			r.Sandbox.BootID = machine.BootID()
		}
		return nil
	})
	return err
}

// Get returns the sandbox that Ensure made.
func (s *Sandboxes) Get(_ context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sandbox, ok := s.pods[pod.UID]
	if !ok {
		return sandbox, fmt.Errorf("sandbox of pod %q: %w", pod.Name, fs.ErrNotExist)
	}
	return sandbox, nil
}

// Remove forgets the sandbox.
func (s *Sandboxes) Remove(_ context.Context, pod *v1.Pod, _ record.Lock) error {
	if s.RemoveErr != nil {
		if err := s.RemoveErr(pod); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
	return s.record(pod.UID, nil)
}

// Lose forgets every sandbox, as a reboot does.
func (s *Sandboxes) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = nil
}

// Left returns the pods that still have a sandbox.
func (s *Sandboxes) Left() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.pods))
}

// Cgroups remembers which pods have a cgroup.
type Cgroups struct {
	// Total is what each container that runs has used.
	Total      podusage.Total
	Processors float64 // that each container uses
	WorkingSet uint64  // of each container, in bytes

	mu       sync.Mutex
	pods     map[types.UID]bool
	stopping map[types.UID]int // how many stop the pod
	begun    time.Time         // when the usage was first asked for
}

// Ensure returns the path that the pod's cgroup would have.
func (c *Cgroups) Ensure(_ context.Context, pod *v1.Pod) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = map[types.UID]bool{}
	}
	c.pods[pod.UID] = true
	return "/kubepods/pod" + string(pod.UID), nil
}

// Stopping notes that the pod was stopped, and until when.
func (c *Cgroups) Stopping(_ context.Context, pod *v1.Pod) (done func()) {
	note := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stopping == nil {
			c.stopping = map[types.UID]int{}
		}
		c.stopping[pod.UID] += n
	}
	note(1)
	return func() { note(-1) }
}

// Stopped reports whether the pod was stopped, and nothing stops it any more.
func (c *Cgroups) Stopped(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.stopping[uid]
	return ok && n == 0
}

// Kill does nothing.
func (c *Cgroups) Kill(context.Context, *v1.Pod, string) error { return nil }

// Remove forgets the pod's cgroup.
func (c *Cgroups) Remove(_ context.Context, pod *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, pod.UID)
	return nil
}

// Usage returns what the containers have used by now, and the pod as much as all of them.
func (c *Cgroups) Usage(pod *v1.Pod, ids []string) (of podusage.Sample, containers map[string]podusage.Sample, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pods[pod.UID] {
		return of, nil, fs.ErrNotExist
	}
	if c.begun.IsZero() {
		c.begun = time.Now()
	}
	each := podusage.Sample{
		CPU: time.Duration(c.Processors * float64(time.Since(c.begun))), Memory: 2 * c.WorkingSet, WorkingSet: c.WorkingSet,
	}
	containers = map[string]podusage.Sample{}
	for _, id := range ids {
		containers[id] = each
		of = podusage.Sample{CPU: of.CPU + each.CPU, Memory: of.Memory + each.Memory, WorkingSet: of.WorkingSet + each.WorkingSet}
	}
	return of, containers, nil
}

// Totals returns the same for each container.
func (c *Cgroups) Totals(_ *v1.Pod, ids []string) map[string]podusage.Total {
	totals := map[string]podusage.Total{}
	for _, id := range ids {
		totals[id] = c.Total
	}
	return totals
}

// Left returns the pods that still have a cgroup.
func (c *Cgroups) Left() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.pods))
}

// Objects are ConfigMaps and Secrets by "namespace/name".
type Objects struct {
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	Claims     map[string]*v1.PersistentVolumeClaim
}

// ConfigMap finds a ConfigMap.
func (o Objects) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	c, ok := o.ConfigMaps[namespace+"/"+name]
	return c, ok
}

// Secret finds a Secret.
func (o Objects) Secret(namespace, name string) (*v1.Secret, bool) {
	s, ok := o.Secrets[namespace+"/"+name]
	return s, ok
}

// Claim finds a PersistentVolumeClaim.
func (o Objects) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	c, ok := o.Claims[namespace+"/"+name]
	return c, ok
}

// PersistentVolume finds none: claims are directories.
func (o Objects) PersistentVolume(string) (*v1.PersistentVolume, bool) { return nil, false }

// Mounts mounts nothing, for tests without root.
type Mounts struct{}

// Mount does nothing.
func (Mounts) Mount(_, _, _ string, _ uintptr, _ string) error { return nil }

// MapUsers does nothing.
func (Mounts) MapUsers(string, string, *os.File, uint64) ([]string, error) { return nil, nil }

// Unmount does nothing.
func (Mounts) Unmount(string) error { return nil }

// Mounted says that nothing is mounted.
func (Mounts) Mounted(string) (bool, error) { return false, nil }

// Lookup finds a shared mount at each path.
func (Mounts) Lookup(path string) (*mountinfo.Info, error) {
	return &mountinfo.Info{Mountpoint: path, Optional: "shared:1"}, nil
}

// Below finds none.
func (Mounts) Below(...string) ([]*mountinfo.Info, error) { return nil, nil }

// MountDisk does nothing.
func (Mounts) MountDisk(context.Context, string, string, bool) error { return nil }

// MountNFS does nothing.
func (Mounts) MountNFS(context.Context, string, string, []string) error { return nil }
