// Package spec turns a pod's container, its image and its sandbox into an OCI runtime
// spec and an environment. Everything here is pure: no clock, no file system, no engine.
package spec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/spec/downward"
)

// Context is what the environment and the spec of a container depend on besides the
// container itself.
type Context struct {
	Pod     *v1.Pod
	Image   engine.Image
	Sandbox Sandbox
	Objects podspec.Objects
	Node    Node
	// File reads a file of the pod's volume, for variables that come from one. Nil refuses
	// them.
	File func(volume, path string) ([]byte, error)
}

// Sandbox is what the containers of a pod share. A namespace path is empty when the pod
// uses the host's.
type Sandbox struct {
	NetNS string
	IPCNS string
	UTSNS string
	// PIDNS is the pid namespace of a pod with shareProcessNamespace.
	PIDNS string
	// UserNS is the user namespace of a pod with hostUsers: false, which owns the others.
	// Users are its IDs on the host, the same for groups.
	UserNS string
	Users  []specs.LinuxIDMapping
	// Hostname is the name that the containers see.
	Hostname string
	// Domain is that of a pod with a subdomain.
	Domain string
	// IPs are the pod's addresses, the primary one first.
	IPs []string
}

// Node is what containers may learn of the machine.
type Node struct {
	Name string
	IPs  []string // the primary one first
	// MemoryCapacity is the machine's memory in bytes.
	MemoryCapacity int64
	// Allocatable stands in for limits that a container does not set.
	Allocatable v1.ResourceList
}

func (c Context) downward() downward.Source {
	return downward.Source{
		Pod: c.Pod, PodIPs: c.Sandbox.IPs, HostIPs: c.Node.IPs, NodeName: c.Node.Name, Allocatable: c.Node.Allocatable,
	}
}
