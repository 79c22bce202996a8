package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec"
)

// loadedProfiles lists the AppArmor profiles in the kernel with their modes:
// "name (enforce)".
const loadedProfiles = "sys/kernel/security/apparmor/profiles"

// searchable is the permission of other users to use what is in a directory.
const searchable fs.FileMode = 0o001

// Preflight finds the pods that this machine cannot run because its kernel, an OCI runtime or
// the container engine lacks a feature or a security profile, before anything starts. It checks
// each feature once, and only when a pod needs it.
type Preflight struct {
	// Files is the machine's root file system.
	Files fs.FS
	// RuntimeFeatures returns the output of the features command of a handler's OCI
	// runtime; the empty name is the default handler.
	RuntimeFeatures func(ctx context.Context, handler string) ([]byte, error)
	// CanMapUsers returns why the container engine does not support user namespaces, nil
	// when it does.
	CanMapUsers func(ctx context.Context) error
	// AppArmor says that the engine can apply AppArmor profiles.
	AppArmor bool
	// SeccompDefault says that containers without a seccomp profile get the default one.
	SeccompDefault bool
	// SeccompDir holds the seccomp profiles of type Localhost.
	SeccompDir string
	// RootfsDir is the directory below which the root file systems of containers are mounted, without
	// links in its path; "" if that is not known.
	RootfsDir string

	mu       sync.Mutex
	features map[string]Features // by handler
}

// Check returns what the machine lacks, by the UID of the pod that needs it.
func (p *Preflight) Check(ctx context.Context, pods []*v1.Pod) map[types.UID]string {
	lacking := map[types.UID]string{}
	userNamespaces := sync.OnceValue(func() error { return p.checkUserNamespaces(ctx) })
	for _, pod := range pods {
		var errs []error
		if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
			errs = append(errs, userNamespaces())
		}
		for _, c := range podspec.Containers(pod) {
			errs = append(errs, p.checkContainer(ctx, pod, c))
		}
		for _, err := range errs {
			if err != nil {
				lacking[pod.UID] = err.Error()
				break
			}
		}
	}
	return lacking
}

func (p *Preflight) checkUserNamespaces(ctx context.Context) error {
	limit, err := fs.ReadFile(p.Files, "proc/sys/user/max_user_namespaces")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("spec.hostUsers: false: the kernel has no user namespaces")
	case err == nil && strings.TrimSpace(string(limit)) == "0":
		return errors.New("spec.hostUsers: false: the kernel allows no user namespaces: sysctl user.max_user_namespaces is 0")
	}
	if err := p.CanMapUsers(ctx); err != nil {
		return fmt.Errorf("spec.hostUsers: false: %w", err)
	}
	if closed := p.closed(p.RootfsDir); len(closed) > 0 {
		all := strings.Join(closed, " ")
		return fmt.Errorf("spec.hostUsers: false: the root file systems of containers are in %s, and the users of a pod, who are others on this machine, "+
			"may not search %s: allow it (chmod o+x %s) or choose another --state", p.RootfsDir, all, all)
	}
	return nil
}

// closed returns those of the directory and the ones above it that other users may not search. What
// does not exist yet will be open.
func (p *Preflight) closed(dir string) []string {
	var closed []string
	for ; len(dir) > 1; dir = filepath.Dir(dir) {
		info, err := fs.Stat(p.Files, strings.TrimPrefix(dir, "/"))
		if err == nil && info.Mode()&searchable == 0 {
			closed = append(closed, dir)
		}
	}
	slices.Reverse(closed)
	return closed
}

func (p *Preflight) checkContainer(ctx context.Context, pod *v1.Pod, c *v1.Container) error {
	if err := p.checkSeccomp(ctx, pod, c); err != nil {
		return fmt.Errorf("container %q: %w", c.Name, err)
	}
	for _, vm := range c.VolumeMounts {
		if vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !p.Features(ctx, pod).RecursiveReadOnly {
			return fmt.Errorf("container %q: volume %q requested recursive read-only mode, but it is not supported by the runtime", c.Name, vm.Name)
		}
	}
	if profile := ocispec.SecurityContext(pod, c).AppArmorProfile; profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined {
		if err := p.checkAppArmor(profile); err != nil {
			return fmt.Errorf("container %q: %w", c.Name, err)
		}
	}
	return nil
}

func (p *Preflight) checkSeccomp(ctx context.Context, pod *v1.Pod, c *v1.Container) error {
	h := ocispec.Host{SeccompDefault: p.SeccompDefault}
	profile := h.SeccompProfile(pod, c)
	if profile.Type != v1.SeccompProfileTypeUnconfined && !p.Features(ctx, pod).Seccomp {
		return fmt.Errorf("seccomp profile %s: the OCI runtime was built without seccomp", profile.Type)
	}
	if profile.Type != v1.SeccompProfileTypeLocalhost || profile.LocalhostProfile == nil {
		return nil
	}
	_, err := ReadSeccomp(p.SeccompDir, *profile.LocalhostProfile)
	return err
}

// checkAppArmor accepts every profile on a machine without AppArmor: admission has rejected
// such pods, as the kubelet does.
func (p *Preflight) checkAppArmor(profile *v1.AppArmorProfile) error {
	if !AppArmorEnabled(p.Files) {
		return nil
	}
	if !p.AppArmor {
		return fmt.Errorf("AppArmor profile %s: /sys/kernel/security/apparmor or the program apparmor_parser does not exist", profile.Type)
	}
	if profile.Type != v1.AppArmorProfileTypeLocalhost || profile.LocalhostProfile == nil {
		return nil
	}
	loaded, err := fs.ReadFile(p.Files, loadedProfiles)
	if err != nil {
		return fmt.Errorf("reading the AppArmor profiles: %w", err)
	}
	for line := range bytes.Lines(loaded) {
		if bytes.HasPrefix(line, []byte(*profile.LocalhostProfile+" (")) {
			return nil
		}
	}
	return fmt.Errorf("AppArmor profile %q is not loaded: load it with apparmor_parser", *profile.LocalhostProfile)
}

// AppArmorEnabled reports whether the kernel has AppArmor enabled.
func AppArmorEnabled(root fs.FS) bool {
	enabled, err := fs.ReadFile(root, "sys/module/apparmor/parameters/enabled")
	return err == nil && strings.TrimSpace(string(enabled)) == "Y"
}

// HasSELinuxOptions reports whether a container of the pod has SELinux options.
func HasSELinuxOptions(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.Containers(pod), func(c *v1.Container) bool {
		return ocispec.SecurityContext(pod, c).SELinuxOptions != nil
	})
}
