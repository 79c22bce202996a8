// Package rules is a stub until the real one is merged.
package rules

import (
	"context"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Table is all that the Services of a root need in the kernel.
type Table struct {
	Name   string
	Ranges []netip.Prefix
	Bridge string
	Source []netip.Addr
	Ports  []Port
}

// Port is a port of a Service.
type Port struct {
	Name           string
	Protocol       v1.Protocol
	IPs            []netip.Addr
	ExternalIPs    []netip.Addr
	Port, NodePort uint16
	Endpoints      []netip.AddrPort
	Affinity       time.Duration
	KeepSource     bool
}

// Apply is a stub.
func Apply(context.Context, Table) error { return nil }

// Present is a stub.
func Present(string) (bool, error) { return true, nil }

// Remove is a stub.
func Remove(context.Context, string) error { return nil }
