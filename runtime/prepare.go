package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/spec"
	"github.com/runonce/runonce/runtime/spec/etc"
)

// step is one part of a pod's ground. undo is called when a later step fails; it may be
// nil.
type step struct {
	name   string
	reason string
	do     func(ctx context.Context) error
	undo   func(ctx context.Context) error
}

// prepare makes the ground that the containers stand on: record, volumes, cgroup,
// sandbox, and the files that every container mounts. It is safe to repeat.
func (p *Pods) prepare(ctx context.Context, at place) (place, error) {
	pod := at.pod
	steps := []step{
		{name: "record", reason: ReasonSandboxError, do: func(ctx context.Context) error { return p.record(ctx, pod) }},
		{
			name: "volumes", reason: ReasonFailedMount,
			do:   func(ctx context.Context) error { return p.o.Volumes.Setup(ctx, pod) },
			undo: func(ctx context.Context) error { return p.o.Volumes.Teardown(ctx, pod) },
		},
		{
			name: "cgroup", reason: ReasonSandboxError,
			do: func(ctx context.Context) error {
				_, err := p.o.Cgroups.Ensure(ctx, pod)
				return err
			},
			undo: func(ctx context.Context) error { return p.o.Cgroups.Remove(ctx, pod) },
		},
		{
			name: "sandbox", reason: ReasonSandboxError,
			do: func(ctx context.Context) (err error) {
				at.box, err = p.o.Sandboxes.Ensure(ctx, pod)
				return err
			},
			undo: func(ctx context.Context) error { return p.o.Sandboxes.Remove(ctx, pod) },
		},
	}
	if sharesProcesses(pod) {
		steps = append(steps, step{
			name: "processes", reason: ReasonSandboxError,
			do: func(ctx context.Context) (err error) {
				at.pidNS, err = p.ensurePause(ctx, at)
				return err
			},
			undo: func(ctx context.Context) error { return p.removePause(ctx, pod) },
		})
	}
	steps = append(steps, step{
		name: "files", reason: ReasonSandboxError,
		do: func(context.Context) error { return p.writeFiles(pod, at.sandbox()) },
	})
	if err := p.run(ctx, at, steps); err != nil {
		return at, err
	}
	at.st.memo.Lock()
	at.st.annotations = at.box.Annotations()
	at.st.memo.Unlock()
	at.st.prepared = true
	return at, nil
}

// run does the steps in order. After a failure it undoes them in reverse, also when ctx is
// done; not so for a pod that has containers already, since they stand on this ground.
// The record has no undo: by it the pod is found again.
func (p *Pods) run(ctx context.Context, at place, steps []step) error {
	for i, s := range steps {
		err := p.step(at.pod.UID, s.name, func() error { return s.do(ctx) })
		if err == nil {
			continue
		}
		if at.fresh {
			err = errors.Join(err, undo(ctx, steps[:i+1]))
		}
		err = fmt.Errorf("preparing the %s of pod %q: %w", s.name, at.pod.Name, err)
		return newSyncError([]*ContainerError{{Why: failure.Reason(err, s.reason), Err: err}})
	}
	return nil
}

// undo takes the steps back, the last one first.
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

// record stores the pod with the time of its first start, before anything of it exists.
func (p *Pods) record(ctx context.Context, pod *v1.Pod) error {
	if _, err := p.store.load(pod.UID); err == nil {
		return nil
	}
	kept := pod.DeepCopy()
	now := metav1.NewTime(time.Now())
	kept.Status = v1.PodStatus{StartTime: &now, QOSClass: podspec.QOS(pod)}
	return p.save(ctx, kept)
}

// The files that every container of a pod mounts, below the pod's directory.
const (
	hostsFile    = "etc-hosts"
	resolvFile   = "resolv.conf"
	hostnameFile = "hostname"
)

// writeFiles writes the files of the pod that its containers share.
func (p *Pods) writeFiles(pod *v1.Pod, box spec.Sandbox) error {
	dir := p.store.path(pod.UID)
	host, err := os.ReadFile(p.o.Host.HostsFile)
	if err != nil && pod.Spec.HostNetwork {
		return fmt.Errorf("reading the host's hosts file: %w", err)
	}
	resolv, err := os.ReadFile(p.o.Host.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the host's resolv.conf: %w", err)
	}
	dns, warnings, err := etc.ResolvConf(pod, etc.DNS{Host: resolv, Servers: p.o.Host.ClusterDNS, Domain: p.o.Host.ClusterDomain})
	if err != nil {
		return err
	}
	if pod.Spec.DNSPolicy == v1.DNSClusterFirst && !pod.Spec.HostNetwork && len(p.o.Host.ClusterDNS) == 0 {
		// Most pods have this policy because they say nothing: that is not worth a warning.
		p.o.Log.Info("dnsPolicy ClusterFirst without --cluster-dns: falling back to Default", "pod", pod.Namespace+"/"+pod.Name)
	}
	for _, w := range warnings {
		p.o.Log.Warn(w, "pod", pod.Namespace+"/"+pod.Name)
	}
	files := map[string][]byte{
		hostsFile:    etc.HostsFile(pod, etc.Names{Hostname: box.Hostname, Domain: box.Domain, IPs: box.IPs}, host),
		resolvFile:   dns,
		hostnameFile: []byte(box.Hostname + "\n"),
	}
	for name, data := range files {
		if err := atomicfile.Write(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
