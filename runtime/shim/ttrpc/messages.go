package ttrpc

import "time"

// Any is google.protobuf.Any, with containerd's URLs.
type Any struct {
	TypeURL string
	Value   []byte
}

func (m *Any) fields() []field { return []field{{1, &m.TypeURL}, {2, &m.Value}} }

// Mount is containerd.types.Mount.
type Mount struct {
	Type, Source, Target string
	Options              []string
}

func (m *Mount) fields() []field {
	return []field{{1, &m.Type}, {2, &m.Source}, {3, &m.Target}, {4, &m.Options}}
}

// Options is containerd.runc.v1.Options.
type Options struct {
	NoPivotRoot, NoNewKeyring bool
	ShimCgroup                string
	IoUID, IoGID              uint32
	BinaryName, Root          string
	SystemdCgroup             bool
}

func (m *Options) fields() []field {
	return []field{
		{1, &m.NoPivotRoot},
		{2, &m.NoNewKeyring},
		{3, &m.ShimCgroup},
		{4, &m.IoUID},
		{5, &m.IoGID},
		{6, &m.BinaryName},
		{7, &m.Root},
		{9, &m.SystemdCgroup},
	}
}

// Stdio is containerd.events.TaskIO, and a part of some requests.
type Stdio struct {
	Stdin, Stdout, Stderr string
	Terminal              bool
}

func (m *Stdio) fields() []field {
	return []field{{1, &m.Stdin}, {2, &m.Stdout}, {3, &m.Stderr}, {4, &m.Terminal}}
}

// CreateRequest is CreateTaskRequest.
type CreateRequest struct {
	ID, Bundle string
	Rootfs     List[Mount, *Mount]
	Stdio
	Checkpoint string
	Options    Any
}

func (m *CreateRequest) fields() []field {
	return []field{
		{1, &m.ID},
		{2, &m.Bundle},
		{3, &m.Rootfs},
		{4, &m.Terminal},
		{5, &m.Stdin},
		{6, &m.Stdout},
		{7, &m.Stderr},
		{8, &m.Checkpoint},
		{10, &m.Options},
	}
}

// Request is any request that names a process, or a container: StartRequest, DeleteRequest,
// StateRequest, WaitRequest, PidsRequest, PauseRequest, ResumeRequest, StatsRequest,
// ConnectRequest and ShutdownRequest.
type Request struct{ ID, ExecID string }

func (m *Request) fields() []field { return []field{{1, &m.ID}, {2, &m.ExecID}} }

// ExecRequest is ExecProcessRequest.
type ExecRequest struct {
	Request
	Stdio
	Spec Any
}

func (m *ExecRequest) fields() []field {
	return append(m.Request.fields(),
		field{3, &m.Terminal}, field{4, &m.Stdin}, field{5, &m.Stdout}, field{6, &m.Stderr}, field{7, &m.Spec})
}

// KillRequest is KillRequest.
type KillRequest struct {
	Request
	Signal uint32
	All    bool
}

func (m *KillRequest) fields() []field {
	return append(m.Request.fields(), field{3, &m.Signal}, field{4, &m.All})
}

// ResizeRequest is ResizePtyRequest.
type ResizeRequest struct {
	Request
	Width, Height uint32
}

func (m *ResizeRequest) fields() []field {
	return append(m.Request.fields(), field{3, &m.Width}, field{4, &m.Height})
}

// CloseIORequest is CloseIORequest.
type CloseIORequest struct {
	Request
	Stdin bool
}

func (m *CloseIORequest) fields() []field { return append(m.Request.fields(), field{3, &m.Stdin}) }

// UpdateRequest is UpdateTaskRequest.
type UpdateRequest struct {
	ID        string
	Resources Any
}

func (m *UpdateRequest) fields() []field { return []field{{1, &m.ID}, {2, &m.Resources}} }

// Empty is google.protobuf.Empty.
type Empty struct{}

func (*Empty) fields() []field { return nil }

// PID is CreateTaskResponse and StartResponse.
type PID struct{ PID uint32 }

func (m *PID) fields() []field { return []field{{1, &m.PID}} }

// Exit is how a process ended: WaitResponse.
type Exit struct {
	Status uint32
	At     time.Time
}

func (m *Exit) fields() []field { return []field{{1, &m.Status}, {2, &m.At}} }

// DeleteResponse is DeleteResponse.
type DeleteResponse struct {
	PID uint32
	Exit
}

func (m *DeleteResponse) fields() []field { return []field{{1, &m.PID}, {2, &m.Status}, {3, &m.At}} }

// The values of containerd.v1.types.Status.
const (
	Created uint32 = iota + 1
	Running
	Stopped
	Paused
)

// StateResponse is StateResponse.
type StateResponse struct {
	Request
	Bundle     string
	PID, State uint32
	Stdio
	Exit
}

func (m *StateResponse) fields() []field {
	return []field{
		{1, &m.ID},
		{2, &m.Bundle},
		{3, &m.PID},
		{4, &m.State},
		{5, &m.Stdin},
		{6, &m.Stdout},
		{7, &m.Stderr},
		{8, &m.Terminal},
		{9, &m.Status},
		{10, &m.At},
		{11, &m.ExecID},
	}
}

// ProcessInfo is containerd.v1.types.ProcessInfo.
type ProcessInfo struct {
	PID  uint32
	Info Any
}

func (m *ProcessInfo) fields() []field { return []field{{1, &m.PID}, {2, &m.Info}} }

// PidsResponse is PidsResponse.
type PidsResponse struct {
	Processes List[ProcessInfo, *ProcessInfo]
}

func (m *PidsResponse) fields() []field { return []field{{1, &m.Processes}} }

// ProcessDetails is containerd.runc.v1.ProcessDetails.
type ProcessDetails struct{ ExecID string }

func (m *ProcessDetails) fields() []field { return []field{{1, &m.ExecID}} }

// ConnectResponse is ConnectResponse.
type ConnectResponse struct{ ShimPID, TaskPID uint32 }

func (m *ConnectResponse) fields() []field { return []field{{1, &m.ShimPID}, {2, &m.TaskPID}} }
