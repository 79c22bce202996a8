package containerd

import (
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/containerd/containerd/v2/pkg/apparmor"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/ocispec"
)

// HasAppArmor reports whether AppArmor can confine containers: the kernel has it, and the
// program that loads profiles is installed.
func HasAppArmor() bool { return apparmor.HostSupports() }

// confine loads the default AppArmor profile for a container that asks for it, unless it is
// already loaded.
func confine(ctx context.Context, c engine.ContainerConfig) error {
	if c.Spec.Process == nil || c.Spec.Process.ApparmorProfile != ocispec.DefaultAppArmor {
		return nil
	}
	if err := loadProfile(ctx, ocispec.DefaultAppArmor); err != nil {
		return &failure.Error{Why: failure.ReasonCreateError, Err: fmt.Errorf("loading the default AppArmor profile: %w", err)}
	}
	return nil
}

// loadProfile does what LoadDefaultProfile of containerd's contrib/apparmor does, without
// text/template, with which the linker keeps every method of every package.
func loadProfile(ctx context.Context, name string) error {
	loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	if err != nil {
		return err
	}
	if strings.Contains("\n"+string(loaded), "\n"+name+" ") {
		return nil
	}
	caller, _ := os.ReadFile("/proc/self/attr/current") // else unconfined
	parser := exec.CommandContext(ctx, "apparmor_parser", "-Kr")
	parser.Stdin = strings.NewReader(profile(name, string(caller), os.DirFS("/etc/apparmor.d")))
	if out, err := parser.CombinedOutput(); err != nil {
		return fmt.Errorf("apparmor_parser: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

//go:embed apparmor.profile
var defaultProfile string

// profile returns the default profile. The caller is the profile of this process, perhaps with its
// mode; installed is the directory with parts that profiles may include.
func profile(name, caller string, installed fs.FS) string {
	part := func(file, text, otherwise string) string {
		if _, err := fs.Stat(installed, file); err != nil {
			return otherwise
		}
		return text
	}
	caller, _, _ = strings.Cut(strings.TrimSpace(caller), " ")
	if caller == "" {
		caller = "unconfined"
	}
	return strings.NewReplacer(
		"PROFILE", name, "CALLER", caller,
		"ABI", part("abi/3.0", "abi <abi/3.0>,", ""),
		"TUNABLES", part("tunables/global", "#include <tunables/global>", "@{PROC}=/proc/"),
		"BASE", part("abstractions/base", "#include <abstractions/base>", ""),
	).Replace(defaultProfile)
}
