package ttrpc

// Metrics is what the processes of a container use: io.containerd.cgroups.v1.Metrics or, with V2,
// io.containerd.cgroups.v2.Metrics.
type Metrics struct {
	V2     bool
	PIDs   int64
	CPU    int64 // nanoseconds, with V2 microseconds
	Memory int64 // bytes
}

func (m *Metrics) fields() []field {
	if m.V2 {
		return []field{{1, &nested{{1, &m.PIDs}}}, {2, &nested{{1, &m.CPU}}}, {4, &nested{{32, &m.Memory}}}}
	}
	return []field{{2, &nested{{1, &m.PIDs}}}, {3, &nested{{1, &nested{{1, &m.CPU}}}}}, {4, &nested{{33, &nested{{2, &m.Memory}}}}}}
}

// nested is a message that has no type of its own.
type nested []field

func (n *nested) fields() []field { return *n }

// StatsResponse is StatsResponse.
type StatsResponse struct{ Stats Any }

func (m *StatsResponse) fields() []field { return []field{{1, &m.Stats}} }

// NewStats returns the response with the metrics.
func NewStats(m *Metrics) *StatsResponse {
	version := "v1"
	if m.V2 {
		version = "v2"
	}
	return &StatsResponse{Any{"io.containerd.cgroups." + version + ".Metrics", Marshal(m)}}
}
