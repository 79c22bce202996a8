package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/distribution/reference"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// KeychainOptions say where a machine keeps the credentials of registries.
type KeychainOptions struct {
	// AuthFile is the only file that is read, if it is set: docker's config.json or podman's
	// auth.json.
	AuthFile string
	// ProviderConfig is the kubelet's CredentialProviderConfig, or a directory of such files;
	// the programs are in ProviderDir.
	ProviderConfig string
	ProviderDir    string
	// Getenv returns environment variables; nil is os.Getenv.
	Getenv func(string) string
	// Pipes reads the files, for all that have the same options; nil reads a pipe only once.
	Pipes *Pipes
}

// Keychain finds the credentials of a machine. Files of credentials are read again for each image,
// the configuration of plugins once.
type Keychain struct {
	o         KeychainOptions
	providers func() ([]*provider, error)
}

// NewKeychain returns a keychain that has read nothing yet.
func NewKeychain(o KeychainOptions) *Keychain {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	return &Keychain{o: o, providers: sync.OnceValues(func() ([]*provider, error) {
		switch {
		case o.ProviderConfig == "" && o.ProviderDir == "":
			return nil, nil
		case o.ProviderConfig == "":
			return nil, errors.New("--image-credential-provider-bin-dir needs --image-credential-provider-config")
		case o.ProviderDir == "":
			return nil, errors.New("--image-credential-provider-config needs --image-credential-provider-bin-dir")
		}
		return readProviders(o.Pipes, o.ProviderConfig, o.ProviderDir)
	})}
}

// Check returns an error for files that the options name and that cannot be used.
func (o KeychainOptions) Check() error {
	k := NewKeychain(o)
	if o.AuthFile == "" {
		_, err := k.providers()
		return err
	}
	return k.Check()
}

// Check returns an error for files that cannot be used.
func (k *Keychain) Check() error {
	_, ferr := k.files()
	_, perr := k.providers()
	return errors.Join(ferr, perr)
}

// files returns the file that was asked for, else those that exist of the places in which docker
// and podman keep credentials.
func (k *Keychain) files() ([]*file, error) {
	for _, asked := range []struct{ by, path string }{
		{"--authfile", k.o.AuthFile},
		{"$REGISTRY_AUTH_FILE", k.o.Getenv("REGISTRY_AUTH_FILE")},
	} {
		if asked.path == "" {
			continue
		}
		f, err := readFile(k.o.Pipes, asked.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", asked.by, err)
		}
		return []*file{f}, nil
	}
	var found []*file
	for _, path := range k.places() {
		f, err := readFile(k.o.Pipes, path)
		switch {
		case err == nil:
			found = append(found, f)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return found, nil
}

// places are the files that are looked for, in order.
func (k *Keychain) places() []string {
	var all []string
	add := func(dir string, rest ...string) {
		if dir != "" {
			all = append(all, filepath.Join(append([]string{dir}, rest...)...))
		}
	}
	add(k.o.Getenv("DOCKER_CONFIG"), "config.json")
	add(k.o.Getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	if os.Geteuid() == 0 {
		add("/run/containers/0/auth.json")
	}
	home := k.o.Getenv("HOME")
	add(k.o.Getenv("XDG_CONFIG_HOME"), "containers", "auth.json")
	add(home, ".config", "containers", "auth.json")
	add(home, ".docker", "config.json")
	if home == "" && os.Geteuid() == 0 {
		add("/root/.docker/config.json") // systemd starts services without HOME
	}
	return all
}

// Login returns the credential for a host from which an image is pulled, empty if there is none.
type Login func(ctx context.Context, host string) (engine.Credential, error)

// Logins returns the ways to log in for an image, in the order in which they are tried: with the
// credentials given, with that of the files, with those of plugins. The first and the last are
// sent to every host that the image may come from, as containerd sends those of the kubelet to a
// mirror. If there are none, the last way is without an own credential for the image's registry,
// and only mirrors get theirs. An error of a plugin is the last element.
func (k *Keychain) Logins(ctx context.Context, ref string, given []engine.Credential) iter.Seq2[Login, error] {
	return func(yield func(Login, error) bool) {
		for _, c := range given {
			if !yield(always(c), nil) {
				return
			}
		}
		named, err := reference.ParseNormalizedNamed(ref)
		if err != nil {
			yield(nil, err)
			return
		}
		own, err := k.lookup(ctx, named.Name())
		if err != nil {
			yield(nil, err)
			return
		}
		fromFiles := func(ctx context.Context, host string) (engine.Credential, error) {
			return k.lookup(ctx, canonical(host)+"/"+reference.Path(named))
		}
		if own.Password != "" && !yield(fromFiles, nil) {
			return
		}
		provided, err := k.provide(ctx, named.Name())
		for _, c := range provided {
			if !yield(always(c), nil) {
				return
			}
		}
		if own.Password == "" && len(given)+len(provided) == 0 && !yield(fromFiles, nil) {
			return
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func always(c engine.Credential) Login {
	return func(context.Context, string) (engine.Credential, error) { return c, nil }
}

// canonical returns the name of a registry in the names of images.
func canonical(host string) string {
	if isHub(host) {
		return hub
	}
	return host
}

// lookup returns the credential of the first file that has one.
func (k *Keychain) lookup(ctx context.Context, name string) (engine.Credential, error) {
	files, err := k.files()
	if err != nil {
		return engine.Credential{}, &failure.Error{Final: true, Err: err}
	}
	for _, f := range files {
		if c, err := f.lookup(ctx, name); err != nil || c.Password != "" {
			return c, err
		}
	}
	return engine.Credential{}, nil
}

// provide returns the credentials of the plugins, and their errors.
func (k *Keychain) provide(ctx context.Context, name string) ([]engine.Credential, error) {
	providers, err := k.providers()
	if err != nil {
		return nil, &failure.Error{Final: true, Err: err}
	}
	all := ring{}
	var failed []error
	for _, p := range providers {
		if err := p.provide(ctx, name, all); err != nil {
			failed = append(failed, err)
		}
	}
	return all.lookup(name), errors.Join(failed...)
}
