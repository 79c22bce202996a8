package ttrpc

import "time"

// Event is an event about a task: the rest of its topic after /tasks/, the name of its type,
// and its content.
type Event struct {
	Topic, Type string
	Message
}

// TaskCreate is TaskCreate.
type TaskCreate struct {
	ID, Bundle string
	Rootfs     List[Mount, *Mount]
	IO         Stdio
	PID        uint32
}

func (m *TaskCreate) fields() []field {
	return []field{{1, &m.ID}, {2, &m.Bundle}, {3, &m.Rootfs}, {4, &m.IO}, {6, &m.PID}}
}

// ContainerEvent is TaskStart, TaskDelete, TaskOOM, TaskPaused and TaskResumed.
type ContainerEvent struct {
	ID  string
	PID uint32
	Exit
}

func (m *ContainerEvent) fields() []field {
	return []field{{1, &m.ID}, {2, &m.PID}, {3, &m.Status}, {4, &m.At}}
}

// ProcessEvent is TaskExit, TaskExecAdded and TaskExecStarted. In a TaskExit, ExecID is the
// container's ID for its first process.
type ProcessEvent struct {
	Request
	PID uint32
	Exit
}

func (m *ProcessEvent) fields() []field {
	return []field{{1, &m.ID}, {2, &m.ExecID}, {3, &m.PID}, {4, &m.Status}, {5, &m.At}}
}

// ForwardRequest is containerd.services.events.ttrpc.v1.ForwardRequest.
type ForwardRequest struct{ envelope envelope }

func (m *ForwardRequest) fields() []field { return []field{{1, &m.envelope}} }

// envelope is containerd.types.Envelope.
type envelope struct {
	at               time.Time
	namespace, topic string
	event            Any
}

func (m *envelope) fields() []field {
	return []field{{1, &m.at}, {2, &m.namespace}, {3, &m.topic}, {4, &m.event}}
}

// Forward returns the request that publishes an event in a namespace.
func (e Event) Forward(namespace string, at time.Time) *ForwardRequest {
	return &ForwardRequest{envelope{at, namespace, "/tasks/" + e.Topic, Any{"containerd.events." + e.Type, Marshal(e.Message)}}}
}
