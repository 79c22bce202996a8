package cputime

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
)

// From linux/connector.h, linux/cn_proc.h and linux/taskstats.h.
const (
	connectorProc = 1 // CN_IDX_PROC and CN_VAL_PROC
	listen        = 1 // PROC_CN_MCAST_LISTEN
	eventFork     = 1 // PROC_EVENT_FORK
	connectorSize = 20
	eventSize     = 16

	statsCommandGet     = 1 // TASKSTATS_CMD_GET
	statsRegisterMask   = 3 // TASKSTATS_CMD_ATTR_REGISTER_CPUMASK
	statsDeregisterMask = 4
	statsTypeTask       = 4 // TASKSTATS_TYPE_AGGR_PID
	statsTypeStats      = 3 // TASKSTATS_TYPE_STATS
	genericHeaderSize   = 4
	typeMask            = 0x3fff // NLA_TYPE_MASK

	// Offsets in struct taskstats, which only grows at its end.
	statsCPU  = 72 // cpu_run_virtual_total: the scheduler's own count, in ns
	statsName = 80
	statsPid  = 128
)

// subscription asks for process events.
func subscription() []byte {
	b := make([]byte, 0, connectorSize+4)
	for _, word := range []uint32{connectorProc, connectorProc, 0, 0, 4 /* length and flags */, listen} {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	return b
}

// parseFork reads a process event. ok is false for all but forks.
func parseFork(data []byte) (f fork, ok bool) {
	if len(data) < connectorSize+eventSize+16 {
		return f, false
	}
	event := data[connectorSize:]
	if binary.NativeEndian.Uint32(event) != eventFork {
		return f, false
	}
	word := func(i int) int { return int(binary.NativeEndian.Uint32(event[eventSize+4*i:])) }
	return fork{parent: word(1), task: word(2), process: word(3)}, true
}

// parseExit reads a message of taskstats. ok is false for all but the end of a task.
func parseExit(data []byte) (e exit, ok bool, err error) {
	if len(data) < genericHeaderSize {
		return e, false, nil
	}
	attrs, err := nl.ParseRouteAttr(data[genericHeaderSize:])
	if err != nil {
		return e, false, fmt.Errorf("reading taskstats: %w", err)
	}
	for _, a := range attrs {
		if a.Attr.Type&typeMask != statsTypeTask {
			continue
		}
		inner, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return e, false, fmt.Errorf("reading taskstats: %w", err)
		}
		for _, s := range inner {
			if s.Attr.Type&typeMask == statsTypeStats && len(s.Value) >= statsPid+4 {
				return parseStats(s.Value), true, nil
			}
		}
	}
	return e, false, nil
}

func parseStats(b []byte) exit {
	name, _, _ := bytes.Cut(b[statsName:statsName+32], []byte{0})
	return exit{
		task: int(binary.NativeEndian.Uint32(b[statsPid:])),
		name: string(name),
		cpu:  time.Duration(binary.NativeEndian.Uint64(b[statsCPU:])),
	}
}
