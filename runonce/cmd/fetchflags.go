package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/image"
)

const (
	// defaultPullTimeout is that of containerd for the kubelet (image_pull_progress_timeout).
	defaultPullTimeout = 5 * time.Minute
	// defaultPulls is how many images are pulled at once; containerd downloads several layers
	// of each at the same time.
	defaultPulls = 4
)

// registryFlags say how registries are used.
type registryFlags struct {
	credentials image.KeychainOptions
	hostsDir    string
	verifierDir string
	pullTimeout time.Duration
	pipes       image.Pipes // of credentials
}

func (f *registryFlags) flags() []cli.Flag {
	c := &f.credentials
	return []cli.Flag{
		&cli.StringFlag{Name: "authfile", Destination: &c.AuthFile, Category: categoryImages, Usage: "registry credentials `FILE`", DefaultText: "docker's, podman's"},
		textFlag(&c.ProviderConfig, categoryImages, "credential provider plugins `FILE`", "image-credential-provider-config", ""),
		textFlag(&c.ProviderDir, categoryImages, "`DIR` of the plugins", "image-credential-provider-bin-dir", ""),
		&cli.StringFlag{Name: "hosts-dir", Destination: &f.hostsDir, Category: categoryImages, Usage: "hosts.toml `DIR`", DefaultText: "/etc/containerd/certs.d"},
		textFlag(&f.verifierDir, categoryImages, "pull only images that all verifiers in `DIR` accept", "image-verifier-dir", ""),
		durationFlag(&f.pullTimeout, categoryImages, "retry a pull that stalls for `DURATION`", "pull-timeout", defaultPullTimeout),
	}
}

func (f *registryFlags) check() error {
	f.credentials.Pipes = &f.pipes
	if err := existingDir("hosts-dir", f.hostsDir); f.hostsDir != "" && err != nil {
		return err
	}
	if err := f.credentials.Check(); err != nil {
		return badInput(err)
	}
	return f.checkVerifiers()
}

// checkVerifiers refuses a directory in which nothing would verify images.
func (f *registryFlags) checkVerifiers() error {
	if f.verifierDir == "" {
		return nil
	}
	programs, err := os.ReadDir(f.verifierDir)
	if err != nil {
		return usagef("--image-verifier-dir: %w", err)
	}
	if len(programs) == 0 {
		return usagef("--image-verifier-dir %s: has no verifier: put a program there, such as one that calls cosign", f.verifierDir)
	}
	for _, p := range programs {
		if _, err := exec.LookPath(filepath.Join(f.verifierDir, p.Name())); err != nil {
			return usagef("--image-verifier-dir: everything there must be a program: %w", err)
		}
	}
	return nil
}

// setTo says how to pull images.
func (f *registryFlags) setTo(o *containerd.Options, getenv func(string) string) {
	o.CertsDir, o.PullTimeout, o.VerifierDir, o.Credentials = f.hostsDir, f.pullTimeout, f.verifierDir, f.credentials
	o.Credentials.Getenv = getenv
}

// fetchFlags say how images are looked up and pulled.
type fetchFlags struct {
	registryFlags
	retryFlags
	pulls int // at once
	lock  string
}

func (f *fetchFlags) flags() []cli.Flag {
	return slices.Concat(f.registryFlags.flags(), []cli.Flag{
		numberFlag(&f.pulls, categoryImages, "pull up to `N` images at once", "parallel-pulls", defaultPulls),
		textFlag(&f.lock, categoryImages, "use image digests in `FILE`, add missing ones", "lock", ""),
	}, f.retryFlags.flags())
}

func (f *fetchFlags) check() error {
	if err := f.retryFlags.check(); err != nil {
		return err
	}
	if f.pulls < 1 {
		return usagef("--parallel-pulls %d: must be at least 1", f.pulls)
	}
	return f.registryFlags.check()
}
