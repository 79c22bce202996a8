package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
)

// step is one part of what a pod needs before its containers.
type step struct {
	name   string
	reason string // of an error that has none
	do     func(ctx context.Context, pod *v1.Pod) error
	undo   func(ctx context.Context, pod *v1.Pod) error // called when a later step fails; may be nil
}

// prepare makes what the containers need: record, volumes, cgroup, sandbox, and the files that
// every container mounts. It is safe to repeat.
func (p *Pods) prepare(ctx context.Context, w *work) error {
	connected := false
	sandbox := func(ctx context.Context, pod *v1.Pod) (err error) {
		w.sandbox, err = p.o.Sandboxes.Ensure(ctx, pod, w.lock)
		connected = err == nil
		return err
	}
	disconnect := func(ctx context.Context, pod *v1.Pod) error {
		if !connected {
			return nil // Ensure has undone what it could: a plugin that hangs is not called again
		}
		return p.o.Sandboxes.Remove(ctx, pod, w.lock)
	}
	steps := []step{
		{"record", podstate.ReasonSandboxError, func(ctx context.Context, pod *v1.Pod) (err error) {
			w.record, err = p.recordStart(ctx, pod)
			return err
		}, nil},
		{"volumes", failure.ReasonFailedMount, p.o.Volumes.Setup, p.o.Volumes.Teardown},
		{"cgroup", podstate.ReasonSandboxError, func(ctx context.Context, pod *v1.Pod) error {
			_, err := p.o.Cgroups.Ensure(ctx, pod)
			return err
		}, p.o.Cgroups.Remove},
		{"sandbox", podstate.ReasonSandboxError, sandbox, disconnect},
	}
	if podstate.SharesProcesses(w.pod) {
		ensure := func(ctx context.Context, _ *v1.Pod) error { return p.ensurePause(ctx, w) }
		steps = append(steps, step{"processes", podstate.ReasonSandboxError, ensure, p.removePause})
	}
	write := func(_ context.Context, pod *v1.Pod) error { return p.writeFiles(pod, w.sandbox) }
	steps = append(steps, step{"files", podstate.ReasonSandboxError, write, nil})
	if err := p.run(ctx, w, steps); err != nil {
		return err
	}
	p.remember(w.pod.UID, func(m *memory) { m.prepared, m.annotations = true, w.sandbox.Annotations })
	return nil
}

// run does the steps in order. After an error it undoes them in reverse, also when ctx is
// done, unless the pod already has containers, since they need what was made. The record is
// not undone: by it the pod is found again.
func (p *Pods) run(ctx context.Context, w *work, steps []step) error {
	for i, s := range steps {
		err := p.traced(w.pod.UID, s.name, func() error { return s.do(ctx, w.pod) })
		if err == nil {
			continue
		}
		if w.fresh {
			err = errors.Join(err, undo(ctx, w.pod, steps[:i+1]))
		}
		return &failure.Error{Why: failure.Reason(err, s.reason), Err: fmt.Errorf("preparing the %s of pod %q: %w", s.name, w.pod.Name, err)}
	}
	return nil
}

// undo undoes the steps, the last one first.
func undo(ctx context.Context, pod *v1.Pod, steps []step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if s.undo != nil {
			errs = append(errs, s.undo(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// The files that every container of a pod mounts, below the pod's directory.
const (
	hostsFile    = "etc-hosts"
	resolvFile   = "resolv.conf"
	hostnameFile = "hostname"
)

// writeFiles writes the files of the pod that its containers share.
func (p *Pods) writeFiles(pod *v1.Pod, sandbox engine.Sandbox) error {
	dir := p.o.Records.Dir(pod.UID)
	host, err := os.ReadFile(p.o.Host.HostsFile)
	if err != nil && pod.Spec.HostNetwork && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the host's hosts file: %w", err)
	}
	resolv, err := os.ReadFile(p.o.Host.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the host's resolv.conf: %w", err)
	}
	dns, warnings, err := ocispec.ResolvConf(pod, ocispec.DNS{Host: resolv, Servers: p.o.Host.ClusterDNS, Domain: p.o.Host.ClusterDomain})
	if err != nil {
		return err
	}
	if pod.Spec.DNSPolicy == v1.DNSClusterFirst && !pod.Spec.HostNetwork && len(p.o.Host.ClusterDNS) == 0 {
		// Most pods have this policy by default: that is not worth a warning.
		p.o.Log.Info("dnsPolicy ClusterFirst without --cluster-dns: falling back to Default", "pod", pod.Namespace+"/"+pod.Name)
	}
	for _, w := range warnings {
		p.o.Log.Warn(w, "pod", pod.Namespace+"/"+pod.Name)
	}
	files := map[string][]byte{
		hostsFile:    ocispec.HostsFile(pod, sandbox, host),
		resolvFile:   dns,
		hostnameFile: []byte(sandbox.Hostname + "\n"),
	}
	for name, data := range files {
		if err := atomicfile.Write(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
