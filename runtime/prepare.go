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
	reason string
	do     func(ctx context.Context) error
	undo   func(ctx context.Context) error // called when a later step fails; may be nil
}

// prepare makes what the containers need: record, volumes, cgroup, sandbox, and the files that
// every container mounts. It is safe to repeat.
func (p *Pods) prepare(ctx context.Context, w *work) error {
	pod := w.pod
	connected := false
	steps := []step{
		{name: "record", reason: podstate.ReasonSandboxError, do: func(ctx context.Context) (err error) {
			w.record, err = p.recordStart(ctx, pod)
			return err
		}},
		{
			name: "volumes", reason: failure.ReasonFailedMount,
			do:   func(ctx context.Context) error { return p.o.Volumes.Setup(ctx, pod) },
			undo: func(ctx context.Context) error { return p.o.Volumes.Teardown(ctx, pod) },
		},
		{
			name: "cgroup", reason: podstate.ReasonSandboxError,
			do: func(ctx context.Context) error {
				_, err := p.o.Cgroups.Ensure(ctx, pod)
				return err
			},
			undo: func(ctx context.Context) error { return p.o.Cgroups.Remove(ctx, pod) },
		},
		{
			name: "sandbox", reason: podstate.ReasonSandboxError,
			do: func(ctx context.Context) (err error) {
				w.sandbox, err = p.o.Sandboxes.Ensure(ctx, pod, w.lock)
				connected = err == nil
				return err
			},
			undo: func(ctx context.Context) error {
				if !connected {
					return nil // Ensure has undone what it could: a plugin that hangs is not called again
				}
				return p.o.Sandboxes.Remove(ctx, pod, w.lock)
			},
		},
	}
	if podstate.SharesProcesses(pod) {
		steps = append(steps, step{
			name: "processes", reason: podstate.ReasonSandboxError,
			do:   func(ctx context.Context) error { return p.ensurePause(ctx, w) },
			undo: func(ctx context.Context) error { return p.removePause(ctx, pod) },
		})
	}
	steps = append(steps, step{
		name: "files", reason: podstate.ReasonSandboxError,
		do: func(context.Context) error { return p.writeFiles(pod, w.sandbox) },
	})
	if err := p.run(ctx, w, steps); err != nil {
		return err
	}
	p.remember(pod.UID, func(m *memory) { m.prepared, m.annotations = true, w.sandbox.Annotations })
	return nil
}

// run does the steps in order. After an error it undoes them in reverse, also when ctx is
// done, unless the pod already has containers, since they need what was made. The record is
// not undone: by it the pod is found again.
func (p *Pods) run(ctx context.Context, w *work, steps []step) error {
	for i, s := range steps {
		err := p.traced(w.pod.UID, s.name, func() error { return s.do(ctx) })
		if err == nil {
			continue
		}
		if w.fresh {
			err = errors.Join(err, undo(ctx, steps[:i+1]))
		}
		return &failure.Error{Why: failure.Reason(err, s.reason), Err: fmt.Errorf("preparing the %s of pod %q: %w", s.name, w.pod.Name, err)}
	}
	return nil
}

// undo undoes the steps, the last one first.
func undo(ctx context.Context, steps []step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if s.undo != nil {
			errs = append(errs, s.undo(ctx))
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
