// Package podusage has what pods use of processors and memory at a moment.
package podusage

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
