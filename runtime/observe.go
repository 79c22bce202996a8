package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/podstate"
)

// observe collects all that is known of the pod: on the machine, in its record, which has its
// definition if it was ever started, and in this process's memory.
func (p *Pods) observe(ctx context.Context, pod *v1.Pod) (*podstate.Observation, error) {
	o := &podstate.Observation{
		Pod: pod, Probes: p.probes.of(pod.UID),
		HostIPs: p.o.Node.IPs, RecursiveReadOnly: p.o.Volumes.RecursiveReadOnly,
	}
	all, err := p.lookUp(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Pod = o.Record.Definition(pod)
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

// maxLooks bounds how often a pod is looked at whose record changes all the time.
const maxLooks = 5

// lookUp fills in the record and the sandbox of the pod and returns its containers. It looks again
// if the record has changed meanwhile: an exit must not be seen without the stop that was recorded
// before it.
func (p *Pods) lookUp(ctx context.Context, o *podstate.Observation) (all []engine.Container, err error) {
	if o.Record, err = p.known(o.Pod.UID); err != nil {
		return nil, err
	}
	for range maxLooks {
		before := o.Record
		switch sandbox, err := p.o.Sandboxes.Get(ctx, o.Pod); {
		case err == nil:
			o.Sandbox, o.IPs = &sandbox, sandbox.IPs
		case errors.Is(err, fs.ErrNotExist):
			o.Sandbox, o.IPs = nil, nil
		default:
			return nil, fmt.Errorf("reading the sandbox of pod %q: %w", o.Pod.Name, err)
		}
		if all, err = p.o.Engine.Containers(ctx, string(o.Pod.UID)); err != nil {
			return nil, fmt.Errorf("listing containers of pod %q: %w", o.Pod.Name, err)
		}
		if o.Record, err = p.known(o.Pod.UID); err != nil || o.Record == before {
			return all, err
		}
	}
	return all, nil
}

// How much of a log stands in for a termination message (pkg/kubelet/container).
const (
	fallbackLines = 80
	fallbackBytes = 2048
)

// readMessages fills in the termination messages of the containers that have ended.
func (p *Pods) readMessages(o *podstate.Observation) {
	for _, def := range podspec.AllContainers(o.Pod) {
		if c := o.Containers[def.Name]; c.State == engine.StateExited && c.Exit.Message == "" {
			c.Exit.Message = p.terminationMessage(o.Pod, def, c)
			if c.Exit.Message == "" && c.Exit.OOMKilled && c.Exit.ExitCode != 0 {
				c.Exit.Message = fullVolume(o.Pod, def, p.o.Volumes.InMemory)
			}
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

const (
	// terminationLogs is how the names of the files begin, in the pod's directory, to which its
	// containers write their termination messages.
	terminationLogs = "termination-log."
	// terminationLogMode lets any user of the container write its termination message.
	terminationLogMode = 0o666
)

// terminationLog is the path of the container's termination message on the host.
func (p *Pods) terminationLog(pod *v1.Pod, name string, attempt int) string {
	return filepath.Join(p.o.Records.Dir(pod.UID), terminationLogs+name+"."+strconv.Itoa(attempt))
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

const (
	// measureEvery bounds how often the storage of a pod is measured: a pod is observed every
	// ten seconds, as by the kubelet's eviction manager, but with events far more often.
	measureEvery = time.Second
	// measurePause is how many times as long as a measurement the pause after it is.
	measurePause = 5
)

// measure finds out whether the pod uses more local storage than it may, if that is due.
// Limits are only enforced on what this process has synced, not on what it lists.
func (p *Pods) measure(ctx context.Context, o *podstate.Observation) error {
	if !podstate.LimitsStorage(o.Pod) || !anyRuns(o) || o.Record.Failed != nil {
		return nil
	}
	due := false
	p.remember(o.Pod.UID, func(m *memory) {
		if due = m.synced && !time.Now().Before(m.nextMeasure); due {
			m.nextMeasure = time.Now().Add(measureEvery)
		}
	})
	if !due {
		return nil
	}
	begin := time.Now()
	used, err := p.storage(ctx, o)
	if err != nil {
		return fmt.Errorf("measuring the storage of pod %q: %w", o.Pod.Name, err)
	}
	p.remember(o.Pod.UID, func(m *memory) {
		m.exceeded = podstate.StorageExceeded(o.Pod, used)
		// Where a measurement takes long, the machine must not do much else.
		m.nextMeasure = time.Now().Add(max(measureEvery, measurePause*time.Since(begin)))
	})
	return nil
}

func anyRuns(o *podstate.Observation) bool {
	for _, c := range o.Containers {
		if c.State == engine.StateRunning {
			return true
		}
	}
	return false
}

// storage measures what the pod uses.
func (p *Pods) storage(ctx context.Context, o *podstate.Observation) (podstate.StorageUsage, error) {
	used := podstate.StorageUsage{Containers: map[string]int64{}}
	pod := o.Pod
	var err error
	if used.Volumes, err = p.o.Volumes.Usage(ctx, pod); err != nil {
		return used, err
	}
	for name, c := range o.Containers {
		// Of older instances the kubelet keeps only the last.
		written, err := logUsage(c)
		if err != nil {
			return used, err
		}
		layer, err := p.o.Engine.Usage(ctx, c.ID)
		if err != nil {
			return used, err
		}
		used.Containers[name] = written + layer
	}
	return used, nil
}

// pidNamespace is the path of the container's process namespace, empty when it does not run.
func pidNamespace(c engine.Container) string {
	if c.State != engine.StateRunning {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns/pid", c.PID)
}
