package runtime

import (
	"context"
	"errors"
	"sync"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/image"
)

// pulls fetches each image once for all the pods that want it.
type pulls struct {
	images engine.Images
	local  map[string]bool // references that the user gave along

	mu   sync.Mutex
	done map[string]engine.Image
	busy map[string]chan struct{}
}

// get returns the image by the pull policy (pkg/kubelet/images/image_manager.go). secrets
// are the pull secrets of the pod that wants it.
func (p *pulls) get(ctx context.Context, name string, policy v1.PullPolicy, secrets []*v1.Secret) (engine.Image, error) {
	ref, err := image.Normalize(name)
	if err != nil {
		return engine.Image{}, err
	}
	release, err := p.lock(ctx, ref)
	if err != nil {
		return engine.Image{}, err
	}
	defer release()
	if img, ok := p.pulled(ref); ok {
		return img, nil
	}
	img, err := p.images.Image(ctx, ref)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return engine.Image{}, err
	}
	pull, err := image.Decide(image.Policy{Ref: name, Pull: policy, Present: err == nil, Local: p.local[ref]})
	if err != nil || !pull {
		return img, err
	}
	credentials, err := image.Credentials(secrets, ref)
	if err != nil {
		return engine.Image{}, err
	}
	img, err = p.images.Pull(ctx, ref, credentials...)
	if err != nil {
		return engine.Image{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[ref] = img
	return img, nil
}

func (p *pulls) pulled(ref string) (engine.Image, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	img, ok := p.done[ref]
	return img, ok
}

// lock waits until nobody else looks for the same image.
func (p *pulls) lock(ctx context.Context, ref string) (release func(), err error) {
	for {
		p.mu.Lock()
		if p.busy == nil {
			p.busy, p.done = map[string]chan struct{}{}, map[string]engine.Image{}
		}
		wait, taken := p.busy[ref]
		if !taken {
			mine := make(chan struct{})
			p.busy[ref] = mine
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.busy, ref)
				close(mine)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
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
