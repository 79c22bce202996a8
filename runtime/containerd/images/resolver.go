package images

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/pkg/imageverifier"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Registries says how registries are found and asked.
type Registries struct {
	CertsDir string // of the hosts files
	Keychain *image.Keychain
	Timeout  time.Duration // ends what gets nothing from a registry for so long; 0 for never
	// Verifier must accept what is pulled; nil for everything.
	Verifier imageverifier.ImageVerifier
}

// Access is Registries with one way to log in for one image.
type Access struct {
	registries Registries
	ref        string // normalized
	login      image.Login
	bytes      *atomic.Int64 // counts what arrives, unless it is nil
}

// Each calls op with one way after the other to log in for the image with a normalized reference,
// until op succeeds or returns an error that may go away. The credentials given come first.
func (r Registries) Each(ctx context.Context, ref string, given []engine.Credential, op func(Access) error) error {
	var err error
	for login, lerr := range r.Keychain.Logins(ctx, ref, given) {
		if lerr != nil && err != nil {
			return failure.WithMessage(err.Error()+"; "+lerr.Error(), lerr)
		}
		if lerr != nil {
			return lerr
		}
		if err = op(Access{r, ref, login, nil}); err == nil || !IsPermanent(err) {
			return err
		}
	}
	return err
}

// counted returns the access with what arrives counted for the transfer, which may be nil.
func (a Access) counted(t *Transfer) Access {
	if t != nil {
		a.bytes = &t.bytes
	}
	return a
}

// Use calls op with a resolver, and ends it when the registry sends nothing for too long. The error
// says why the registry did not give what it was asked for.
func (a Access) Use(ctx context.Context, op func(context.Context, remotes.Resolver) error) error {
	ctx, t, end := watchTraffic(ctx, a.registries.Timeout)
	defer end()
	t.bytes = a.bytes
	o := a.registries.hostOptions()
	o.Credentials = func(host string) (user, secret string, err error) {
		c, err := a.login(ctx, host)
		t.noteLogin(unknown)
		if c.Password != "" {
			t.noteLogin(loggedIn)
		}
		return c.User, c.Password, err
	}
	o.UpdateClient = func(c *http.Client) error {
		if _, watched := c.Transport.(*transport); !watched {
			c.Transport = &transport{c.Transport, t}
		}
		return nil
	}
	err := op(ctx, docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, o)}))
	if err != nil {
		return pullError(ctx, a, NativeError(err), t)
	}
	return nil
}

// hostOptions are for the hosts files. Unless one says otherwise, the certificates of registries on
// this machine are not verified, and plain HTTP is used for those that do not speak TLS.
func (r Registries) hostOptions() config.HostOptions {
	return config.HostOptions{HostDir: config.HostDirFromRoot(r.CertsDir)}
}

// Digest asks the registry for the digest of an image with a normalized reference, with the ways to
// log in that a pull uses.
func (r Registries) Digest(ctx context.Context, ref string, given []engine.Credential) (digest string, err error) {
	err = r.Each(ctx, ref, given, func(a Access) error {
		return a.Use(ctx, func(ctx context.Context, resolver remotes.Resolver) error {
			_, target, err := resolver.Resolve(ctx, ref)
			digest = target.Digest.String()
			return err
		})
	})
	if err != nil {
		return "", fmt.Errorf("asking for image %q: %w", ref, PullFailure(err))
	}
	return digest, nil
}
