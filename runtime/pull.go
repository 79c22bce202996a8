package runtime

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// pull is an image as far as this process has pulled it, once for all pods that want it.
type pull struct {
	turn chan struct{} // holds a value while somebody looks for the image
	img  *engine.Image // nil until it was pulled
}

// ensureImage returns the image, pulled if its pull policy says so
// (pkg/kubelet/images/image_manager.go, EnsureImageExists).
func (p *Pods) ensureImage(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (engine.Image, error) {
	ref, err := image.Normalize(name)
	if err != nil {
		return engine.Image{}, err
	}
	known := p.pullOf(ref)
	select {
	case known.turn <- struct{}{}:
		defer func() { <-known.turn }()
	case <-ctx.Done():
		return engine.Image{}, context.Cause(ctx)
	}
	if known.img != nil {
		return *known.img, nil
	}
	img, err := p.o.Engine.Image(ctx, ref)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return engine.Image{}, err
	}
	local := slices.Contains(p.o.LocalImages, ref)
	wanted, err := image.Decide(image.Policy{Ref: name, Pull: policy, Present: err == nil, Local: local})
	if err != nil || !wanted {
		return img, err
	}
	credentials, err := image.Credentials(p.pullSecrets(pod), ref)
	if err != nil {
		return engine.Image{}, err
	}
	if img, err = p.o.Engine.Pull(ctx, ref, credentials...); err != nil {
		return engine.Image{}, err
	}
	known.img = &img
	return img, nil
}

func (p *Pods) pullOf(ref string) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.pulls[ref]
	if !ok {
		known = &pull{turn: make(chan struct{}, 1)}
		p.pulls[ref] = known
	}
	return known
}

// pullSecrets returns the pod's pull secrets that came with the pods; an absent one was
// warned about when the pod was read (getPullSecretsForPod of pkg/kubelet).
func (p *Pods) pullSecrets(pod *v1.Pod) []*v1.Secret {
	var all []*v1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		if s, ok := p.o.Objects.Secret(pod.Namespace, ref.Name); ok {
			all = append(all, s)
		}
	}
	return all
}
