// Package ocispec turns a pod's container, its image and its sandbox into an OCI runtime
// spec and an environment. Everything here is pure: no clock, no file system, no engine.
package ocispec

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/ocispec/downward"
)

// Context is what the environment and the spec of a container depend on besides the
// container itself.
type Context struct {
	Pod     *v1.Pod
	Image   engine.Image
	Sandbox engine.Sandbox
	Objects podspec.Objects
	Node    Node
	// File reads a file of the pod's volume, for variables that come from one. Nil refuses
	// them.
	File func(volume, path string) ([]byte, error)
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
