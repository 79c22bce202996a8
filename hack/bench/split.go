package main

import (
	"slices"
	"strings"

	"github.com/runonce/runonce/hack/bench/cputime"
)

// The parts that CPU time is split into.
const (
	partClient    = "client"
	partDaemon    = "daemon"
	partShim      = "shim"
	partRuntime   = "OCI runtime"
	partContainer = "container start-up"
	partNetwork   = "network"
	partOther     = "other"
)

var parts = []string{partClient, partDaemon, partShim, partRuntime, partContainer, partNetwork, partOther}

// programs are those of each part. The kernel cuts names to 15 bytes.
var programs = map[string][]string{
	partClient: {"runonce", "floor", "podman", "crictl"},
	partDaemon: {"containerd"},
	partShim:   {"containerd-shim", "runonce-shim", "conmon"},
	// runc starts itself again as exe.
	partRuntime: {"runc", "crun", "exe"},
	// What runc and crun do inside the new namespaces, and the container's own program.
	partContainer: {"pause", "catatonit"},
	partNetwork:   {"bridge", "host-local", "portmap", "firewall", "tuning", "netavark", "aardvark-dns", "nft"},
}

// partOf returns the part that a program's time belongs to. runc's process in the new
// namespaces is named runc:[1:CHILD] or runc:[2:INIT].
func partOf(program string) string {
	switch {
	case strings.HasPrefix(program, "runc:["):
		return partContainer
	case strings.HasPrefix(program, "iptables"), strings.HasPrefix(program, "ip6tables"), strings.HasPrefix(program, "xtables"):
		return partNetwork
	}
	for _, part := range parts {
		if slices.Contains(programs[part], program) {
			return part
		}
	}
	return partOther
}

// msPerPod returns a part's CPU time in milliseconds per pod, or that of all parts if part is "".
func msPerPod(usage []cputime.Usage, part string, pods int) float64 {
	sum := 0.0
	for _, u := range usage {
		if part == "" || partOf(u.Name) == part {
			sum += u.CPU.Seconds()
		}
	}
	return sum * 1000 / float64(pods)
}

// others returns the names of the programs of no part, the biggest first.
func others(usage []cputime.Usage) []string {
	var names []string
	for _, u := range usage {
		if partOf(u.Name) == partOther {
			names = append(names, u.Name)
		}
	}
	return names
}
