package compose

import (
	"math"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources converts limits and reservations. In docker, a limit reserves nothing: so it is no request either.
func (p *pod) resources(at place, s *types.ContainerSpec) v1.ResourceRequirements {
	limits, requests := v1.ResourceList{}, v1.ResourceList{}
	set := func(list v1.ResourceList, name v1.ResourceName, quantity *resource.Quantity) {
		if !quantity.IsZero() {
			list[name] = *quantity
		}
	}
	set(limits, v1.ResourceCPU, cpus(float64(s.CPUS)))
	if s.CPUQuota > 0 {
		period := int64(100000)
		if s.CPUPeriod > 0 {
			period = s.CPUPeriod
		}
		set(limits, v1.ResourceCPU, cpus(float64(s.CPUQuota)/float64(period)))
	}
	set(limits, v1.ResourceMemory, memory(s.MemLimit))
	set(requests, v1.ResourceMemory, memory(s.MemReservation))
	set(requests, v1.ResourceCPU, cpus(float64(s.CPUShares)/1024))
	p.deployed(at, set, limits, requests)
	if s.MemSwapLimit != 0 && s.MemSwapLimit != s.MemLimit {
		p.warn(at.at("memswap_limit"), "pods do not swap unless --swap says so")
	}
	p.gpus(at.at("gpus"), s.Gpus, limits)
	for name := range limits {
		if _, ok := requests[name]; !ok && (name == v1.ResourceCPU || name == v1.ResourceMemory) {
			requests[name] = resource.MustParse("0")
		}
	}
	return v1.ResourceRequirements{Limits: orNil(limits), Requests: orNil(requests)}
}

func orNil(list v1.ResourceList) v1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return list
}

func cpus(n float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(math.Round(n*1000)), resource.DecimalSI)
}

func memory(n types.UnitBytes) *resource.Quantity {
	return resource.NewQuantity(int64(n), resource.BinarySI)
}

// deployed converts the resources of deploy, which a service has.
func (p *pod) deployed(at place, set func(v1.ResourceList, v1.ResourceName, *resource.Quantity), limits, requests v1.ResourceList) {
	if len(at) != 2 { // a container before that of the service
		return
	}
	d := p.Services[at[1]].Deploy
	if d == nil {
		return
	}
	at = at.at("deploy", "resources")
	if l := d.Resources.Limits; l != nil {
		set(limits, v1.ResourceCPU, cpus(float64(l.NanoCPUs)))
		set(limits, v1.ResourceMemory, memory(l.MemoryBytes))
		if l.Pids > 0 {
			p.warn(at.at("limits", "pids"), "the number of processes is limited for all pods alike, by --pod-pids-limit")
		}
	}
	r := d.Resources.Reservations
	if r == nil {
		return
	}
	set(requests, v1.ResourceCPU, cpus(float64(r.NanoCPUs)))
	set(requests, v1.ResourceMemory, memory(r.MemoryBytes))
	if len(r.GenericResources) > 0 {
		p.warn(at.at("reservations", "generic_resources"), "are left out: only swarms have them")
	}
	p.gpus(at.at("reservations", "devices"), r.Devices, limits)
}

// gpus asks for devices of a CDI specification by the names that NVIDIA's and AMD's have.
func (p *pod) gpus(at place, devices []types.DeviceRequest, limits v1.ResourceList) {
	for _, d := range devices {
		kind := map[string]v1.ResourceName{"": "nvidia.com/gpu", "nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}[strings.ToLower(d.Driver)]
		switch {
		case kind == "":
			p.warn(at, "devices of the driver %s are left out: request a kind of CDI devices instead", d.Driver)
		case d.Count < 0 || d.Count == 0 && len(d.IDs) == 0:
			p.warn(at, "a pod requests a number of devices: it gets one, where it is to get all")
			limits[kind] = resource.MustParse("1")
		default:
			if len(d.IDs) > 0 {
				p.warn(at, "devices are not chosen by their IDs: it gets any %d", len(d.IDs))
			}
			limits[kind] = *resource.NewQuantity(max(int64(d.Count), int64(len(d.IDs))), resource.DecimalSI)
		}
	}
}
