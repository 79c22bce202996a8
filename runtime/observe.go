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

// observe looks at the pod as it is, once, and completes that by what this process remembers.
func (p *Pods) observe(ctx context.Context, pod *v1.Pod) (*podstate.Observation, error) {
	o := &podstate.Observation{
		Pod: pod, Record: &record.Pod{}, Probes: p.probes.of(pod.UID),
		HostIPs: p.o.Node.IPs, RecursiveReadOnly: p.o.RecursiveReadOnly,
	}
	switch known, err := p.o.Records.Load(pod.UID); {
	case err == nil:
		o.Record = known
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	switch box, err := p.o.Sandboxes.Get(ctx, pod); {
	case err == nil:
		o.Sandbox, o.IPs = &box, box.IPs
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("looking at the sandbox of pod %q: %w", pod.Name, err)
	}
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return nil, fmt.Errorf("listing containers of pod %q: %w", pod.Name, err)
	}
	o.Take(all)
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

// What of a log stands in for a termination message (pkg/kubelet/container).
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

// terminationMessage is what the container left at its terminationMessagePath or, by its
// policy, the end of its log when it failed without a word.
func (p *Pods) terminationMessage(pod *v1.Pod, def *v1.Container, c engine.Container) string {
	message := readTerminationLog(p.terminationLog(pod, def.Name, c.Attempt))
	if message != "" || c.Exit.ExitCode == 0 || def.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError {
		return message
	}
	text, err := logs.TailText(c.LogPath, fallbackLines, fallbackBytes)
	if err != nil {
		// The message is a courtesy; the log itself is reported where it is missed.
		return ""
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// maxTerminationMessage bounds a termination message, in bytes (pkg/kubelet/container).
const maxTerminationMessage = 4096

// readTerminationLog returns the message that the container left, "" when it left none.
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
