package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// featuresTimeout limits the features command of an OCI runtime.
const featuresTimeout = 10 * time.Second

// Features are what an OCI runtime and the kernel support.
type Features struct {
	Seccomp           bool
	RecursiveReadOnly bool
}

// Features returns the features of the pod's OCI runtime.
func (p *Preflight) Features(ctx context.Context, pod *v1.Pod) Features {
	p.mu.Lock()
	defer p.mu.Unlock()
	handler := pod.Annotations[podspec.AnnotationRuntimeHandler]
	if f, ok := p.features[handler]; ok {
		return f
	}
	f := FeaturesOf(ctx, func(ctx context.Context) ([]byte, error) { return p.RuntimeFeatures(ctx, handler) })
	if p.features == nil {
		p.features = map[string]Features{}
	}
	p.features[handler] = f
	return f
}

// FeaturesOf returns the features of an OCI runtime, of which output returns the output of its command "features". One
// that is too old for the command has seccomp, as those of the distributions have, and nothing newer.
func FeaturesOf(ctx context.Context, output func(ctx context.Context) ([]byte, error)) Features {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), featuresTimeout)
	defer cancel()
	f := Features{Seccomp: true}
	if text, err := output(ctx); err == nil {
		f = parseFeatures(text)
	}
	f.RecursiveReadOnly = f.RecursiveReadOnly && hasMountSetattr()
	return f
}

func parseFeatures(text []byte) Features {
	var f features.Features
	if err := json.Unmarshal(text, &f); err != nil {
		return Features{Seccomp: true}
	}
	return Features{
		Seccomp:           f.Linux != nil && f.Linux.Seccomp != nil && f.Linux.Seccomp.Enabled != nil && *f.Linux.Seccomp.Enabled,
		RecursiveReadOnly: slices.Contains(f.MountOptions, "rro"),
	}
}

// hasMountSetattr reports whether the kernel can make mounts read-only recursively, as Linux
// 5.12 and later can.
func hasMountSetattr() bool {
	return !errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS)
}
