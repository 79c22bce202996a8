package ttrpc

// BootstrapParams is containerd.runtime.bootstrap.v1.BootstrapParams.
type BootstrapParams struct {
	ID, Namespace string
	Extensions    List[Extension, *Extension]
	SocketDir     string
}

func (m *BootstrapParams) fields() []field {
	return []field{{1, &m.ID}, {2, &m.Namespace}, {8, &m.Extensions}, {9, &m.SocketDir}}
}

// Extension is containerd.runtime.bootstrap.v1.Extension.
type Extension struct{ Value Any }

func (m *Extension) fields() []field { return []field{{1, &m.Value}} }

// BootstrapResult is containerd.runtime.bootstrap.v1.BootstrapResult.
type BootstrapResult struct {
	Version           uint32
	Address, Protocol string
}

func (m *BootstrapResult) fields() []field {
	return []field{{1, &m.Version}, {2, &m.Address}, {3, &m.Protocol}}
}

// RuntimeInfo is containerd.types.RuntimeInfo.
type RuntimeInfo struct {
	Name              string
	Options, Features Any
}

func (m *RuntimeInfo) fields() []field {
	return []field{{1, &m.Name}, {3, &m.Options}, {4, &m.Features}}
}
