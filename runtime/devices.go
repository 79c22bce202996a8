package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/device"
)

// devicesLock is below the root. Whoever chooses devices for a pod holds it until the
// choice is on record.
const devicesLock = "devices.lock"

// save puts the pod on record, with the devices that its containers are going to have:
// none that a pod on record has that has not ended.
func (p *Pods) save(ctx context.Context, kept *v1.Pod) (err error) {
	if p.o.Devices == nil || !device.Wanted(kept, p.o.Devices.Kinds()) {
		return p.store.save(kept)
	}
	lock, err := os.OpenFile(filepath.Join(p.o.Root, devicesLock), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("choosing devices: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("choosing devices: %w", err)
	}
	taken, err := p.takenDevices(ctx)
	if err != nil {
		return fmt.Errorf("choosing devices: %w", err)
	}
	chosen, err := device.Allocate(kept, p.o.Devices.Kinds(), taken)
	if err != nil {
		return fmt.Errorf("choosing devices: %w", err)
	}
	if err := chosen.Keep(kept); err != nil {
		return err
	}
	return p.store.save(kept)
}

// takenDevices returns the devices of all pods that have not ended.
func (p *Pods) takenDevices(ctx context.Context) (map[string]bool, error) {
	pods, err := p.store.list()
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, pod := range pods {
		held, err := device.Of(pod)
		if err != nil {
			return nil, err
		}
		if len(held) == 0 {
			continue
		}
		st, err := p.Status(ctx, pod)
		if err != nil {
			return nil, err
		}
		if st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed {
			continue
		}
		for _, names := range held {
			for _, name := range names {
				taken[name] = true
			}
		}
	}
	return taken, nil
}

// inject gives the container the devices that the pod's record has for it.
func (p *Pods) inject(pod *v1.Pod, c *v1.Container, spec *specs.Spec) error {
	if p.o.Devices == nil || !device.Wanted(pod, p.o.Devices.Kinds()) {
		return nil
	}
	kept, err := p.store.load(pod.UID)
	if err != nil {
		return err
	}
	chosen, err := device.Of(kept)
	if err != nil {
		return err
	}
	return p.o.Devices.Inject(spec, chosen[c.Name])
}
