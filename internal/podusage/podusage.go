// Package podusage has what pods use of processors, memory and disks, and reads it from cgroups.
package podusage

import (
	"math"
	"time"
)

// Sample is what processes have used up to a moment.
type Sample struct {
	CPU    time.Duration // of all processors together, since a beginning that is the same for all samples
	Memory uint64        // bytes, at the moment
	// WorkingSet is Memory without the file cache that the kernel takes back first.
	WorkingSet uint64
}

// Total is what the processes of a container have used from its start to its end, or up to now. What the kernel does not
// tell is nil. Its JSON is part of documents and of exit records.
type Total struct {
	CPUSeconds      *float64 `json:"cpuSeconds,omitempty"`      // of all processors together
	PeakMemoryBytes *int64   `json:"peakMemoryBytes,omitempty"` // the most memory at a time, with the cache of its files
	ReadBytes       *int64   `json:"readBytes,omitempty"`       // from block devices
	WrittenBytes    *int64   `json:"writtenBytes,omitempty"`    // to block devices
	OOMKills        *int64   `json:"oomKills,omitempty"`        // processes that the kernel has killed for want of memory
}

// Killed returns how many processes were killed for want of memory, as far as that is known.
func (t Total) Killed() int64 {
	if t.OOMKills == nil {
		return 0
	}
	return *t.OOMKills
}

// Since returns what is used, by a sample and the one that was taken this time before.
func (s Sample) Since(before Sample, took time.Duration) Usage {
	u := Usage{MemoryBytes: int64(s.WorkingSet)}
	if used := s.CPU - before.CPU; used > 0 && took > 0 {
		u.CPUMillicores = int64(math.Round(1000 * used.Seconds() / took.Seconds()))
	}
	return u
}

// Usage is what is used of processors and memory. Its JSON is part of documents.
type Usage struct {
	CPUMillicores int64 `json:"cpuMillicores"` // thousandths of a processor, on average while it was measured
	MemoryBytes   int64 `json:"memoryBytes"`   // the working set: without what the kernel can take back at once
}

// Pod is what a pod uses.
type Pod struct {
	Usage
	Containers []Container `json:"containers"` // those that run, init containers first
}

// Container is what a container uses.
type Container struct {
	Name string `json:"name"`
	Usage
}

// Of returns what the container with the name uses, and whether it is known.
func (p Pod) Of(name string) (Usage, bool) {
	for _, c := range p.Containers {
		if c.Name == name {
			return c.Usage, true
		}
	}
	return Usage{}, false
}

// Sum returns what the containers use together.
func (p Pod) Sum() (sum Usage) {
	for _, c := range p.Containers {
		sum.CPUMillicores += c.CPUMillicores
		sum.MemoryBytes += c.MemoryBytes
	}
	return sum
}
