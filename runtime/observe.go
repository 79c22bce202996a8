package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// observe collects all that is known of the pod: on the machine, in its record, and in this
// process's memory.
func (p *Pods) observe(ctx context.Context, pod *v1.Pod) (*podstate.Observation, error) {
	o := &podstate.Observation{
		Pod: pod, Record: &record.Pod{}, Probes: p.probes.of(pod.UID),
		HostIPs: p.o.Node.IPs, RecursiveReadOnly: p.o.Volumes.RecursiveReadOnly,
	}
	switch known, err := p.o.Records.Load(pod.UID); {
	case err == nil:
		o.Record = known
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	switch sandbox, err := p.o.Sandboxes.Get(ctx, pod); {
	case err == nil:
		o.Sandbox, o.IPs = &sandbox, sandbox.IPs
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading the sandbox of pod %q: %w", pod.Name, err)
	}
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return nil, fmt.Errorf("listing containers of pod %q: %w", pod.Name, err)
	}
	o.SetContainers(all)
	if o.Sandbox != nil {
		o.Sandbox.PIDNS = pidNamespace(o.Pause)
	}
	p.readMessages(o)
	if err := p.measure(ctx, o); err != nil {
		return nil, err
	}
	p.remember(pod.UID, func(m *memory) { m.recall(o) })
	return o, nil
}

// How much of a log stands in for a termination message (pkg/kubelet/container).
const (
	fallbackLines = 80
	fallbackBytes = 2048
)

// readMessages fills in the termination messages of the containers that have ended.
func (p *Pods) readMessages(o *podstate.Observation) {
	for _, def := range podspec.Containers(o.Pod) {
		if c := o.Containers[def.Name]; c.State == engine.StateExited && c.Exit.Message == "" {
			c.Exit.Message = p.terminationMessage(o.Pod, def, c)
			o.Containers[def.Name] = c
		}
	}
}

// terminationMessage is what the container wrote to its terminationMessagePath or, if its
// policy says so, the end of its log when it failed and wrote nothing.
func (p *Pods) terminationMessage(pod *v1.Pod, def *v1.Container, c engine.Container) string {
	message := readTerminationLog(p.terminationLog(pod, def.Name, c.Attempt))
	if message != "" || c.Exit.ExitCode == 0 || def.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError {
		return message
	}
	text, err := logs.TailText(c.LogPath, fallbackLines, fallbackBytes)
	if err != nil {
		return "" // reading the log itself will report that
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// maxTerminationMessage bounds a termination message, in bytes (pkg/kubelet/container).
const maxTerminationMessage = 4096

// readTerminationLog returns the message that the container wrote, "" when it wrote none.
func readTerminationLog(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	offset := max(0, info.Size()-maxTerminationMessage)
	buf := make([]byte, info.Size()-offset)
	n, err := f.ReadAt(buf, offset)
	if err != nil && n < len(buf) {
		return ""
	}
	return string(buf)
}
