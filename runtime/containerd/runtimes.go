package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	shimoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/server"
)

const stockProgram = "containerd-shim-runc-v2"

// runtimeConfig is what the containers of a handler are created with.
type runtimeConfig struct {
	shim    string
	options proto.Message // nil for none
	// thirdParty says that the shim is not ours: it writes neither CRI logs nor exit records.
	thirdParty bool
}

// runtimeOf returns the configuration of a handler, the default one when name is empty: that with the program of the
// pod, if it is installed. Without such a handler the error has the words of containerd's CRI plugin.
func (s *session) runtimeOf(name, program string) (runtimeConfig, error) {
	r, ok := s.runtimes[cmp.Or(name, DefaultHandler)]
	if !ok {
		return r, fmt.Errorf("no runtime for %q is configured", name)
	}
	options, ours := r.options.(*runcoptions.Options)
	if name != "" || r.thirdParty || !ours || program == "" || options.BinaryName == program {
		return r, nil
	}
	if _, err := exec.LookPath(program); err == nil {
		options = proto.CloneOf(options)
		options.BinaryName, r.options = program, options
	}
	return r, nil
}

// info returns the configuration for containerd. inSlice says that the container's cgroup is a scope
// of systemd; third-party shims with options of their own detect that by themselves.
func (r runtimeConfig) info(inSlice bool) (containers.RuntimeInfo, error) {
	info := containers.RuntimeInfo{Name: r.shim}
	if r.options == nil {
		return info, nil
	}
	options := proto.Clone(r.options)
	if o, ok := options.(*runcoptions.Options); ok {
		o.SystemdCgroup = inSlice
	}
	packed, err := typeurl.MarshalAny(options)
	if err != nil {
		return info, fmt.Errorf("encoding the options of its runtime: %w", err)
	}
	info.Options = packed
	return info, nil
}

// setRuntimes configures the runtimes of the handlers.
func (s *session) setRuntimes(o Options) error {
	s.runtimes = map[string]runtimeConfig{}
	for _, h := range o.Handlers {
		r, err := s.runtime(h, o)
		if err != nil && o.StartsNothing {
			continue
		}
		if err != nil {
			return fmt.Errorf("preparing runtime handler %q: %w", h.Name, err)
		}
		s.runtimes[h.Name] = r
	}
	return nil
}

// runtime returns the configuration of a handler. The start of a third-party shim is left to
// containerd, which must find it: the embedded one in our PATH, a daemon in its own.
func (s *session) runtime(h Handler, o Options) (runtimeConfig, error) {
	if h.Shim == "" {
		opts := &runcoptions.Options{BinaryName: h.Binary}
		if o.Address == "" {
			// The system's containerd may use the same namespace and the same names.
			opts.Root = server.RuntimeRoot(o.State)
		}
		return runtimeConfig{shim: s.shim, options: opts}, nil
	}
	if s.shims != nil {
		if _, err := exec.LookPath(h.Program()); err != nil {
			return runtimeConfig{}, failure.Unusablef("looking for its shim: %w", err)
		}
	}
	r := runtimeConfig{shim: h.Shim, thirdParty: true}
	switch {
	case h.ConfigPath != "" || h.TypeURL != "":
		r.options = &shimoptions.Options{TypeUrl: h.TypeURL, ConfigPath: h.ConfigPath}
	case filepath.Base(h.Program()) == stockProgram:
		r.options = &runcoptions.Options{}
	}
	return r, nil
}

// findRuntimes makes the programs of the handlers absolute paths, if they have any: see chooseRuntime.
func (o *Options) findRuntimes() error {
	o.Handlers = slices.Clone(o.Handlers)
	if !slices.ContainsFunc(o.Handlers, isDefault) {
		o.Handlers = append(o.Handlers, Handler{Name: DefaultHandler, Binary: o.RuncPath})
	}
	for i := range o.Handlers {
		h := &o.Handlers[i]
		if h.Shim != "" || h.Binary == "" {
			continue
		}
		var err error
		if h.Binary, err = findProgram(h.Binary, o.programDirs()); err != nil && !o.StartsNothing {
			return err
		}
	}
	return nil
}

func isDefault(h Handler) bool { return h.Name == DefaultHandler }

// programDirs are directories that a boot script's PATH may lack.
var programDirs = []string{"/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin", "/sbin"}

func (o *Options) programDirs() []string {
	if o.Libexec == "" {
		return programDirs
	}
	return append(slices.Clone(programDirs), o.Libexec)
}

// findProgram returns the absolute path of an OCI runtime.
func findProgram(name string, dirs []string) (string, error) {
	path, err := lookPath(name, dirs)
	switch {
	case err == nil:
		return path, nil
	case !errors.Is(err, exec.ErrNotFound):
		return "", failure.Unusablef("finding the OCI runtime %q: %w", name, err)
	case name == DefaultHandler || name == faster:
		return "", failure.Unusablef("finding the OCI runtime %q: it is not %s: install the package %s", name, searched(dirs), name)
	}
	return "", failure.Unusablef("finding the OCI runtime %q: it is not %s", name, searched(dirs))
}

// searched says where programs are looked for.
func searched(dirs []string) string { return "in PATH or in " + strings.Join(dirs, ", ") }

// lookPath finds the program in PATH or, if it is not a path itself, in the other directories.
// The error wraps exec.ErrNotFound if it is in none of them.
func lookPath(name string, dirs []string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range dirs {
		if !errors.Is(err, exec.ErrNotFound) {
			break
		}
		if other, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return filepath.Abs(other)
		}
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// RuntimeFeatures returns the output of the command "features" of a handler's OCI runtime. An
// empty name means the default handler.
func (e *Engine) RuntimeFeatures(ctx context.Context, name string) ([]byte, error) {
	name = cmp.Or(name, DefaultHandler)
	for _, h := range e.o.Handlers {
		if h.Name == name && h.Binary != "" {
			return Features(ctx, h.Binary)
		}
	}
	return nil, fmt.Errorf("runtime handler %q has no program to ask", name)
}

// Features returns the output of the command "features" of an OCI runtime, or what versions of crun would say that
// have recursive read-only mounts, since 1.4, and not yet the command, which came with 1.8.6.
func Features(ctx context.Context, program string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, program, "features").Output()
	if err == nil {
		return out, nil
	}
	said, _ := exec.CommandContext(ctx, program, "--version").Output()
	if older := olderCrun(string(said)); older != nil {
		return json.Marshal(older)
	}
	return nil, err
}

// olderCrun returns the features of a crun by what it says of its version; nil if it is none.
func olderCrun(version string) *features.Features {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "crun version %d.%d", &major, &minor); n != 2 || major < 1 || major == 1 && minor < 4 {
		return nil
	}
	hasSeccomp := strings.Contains(version, "+SECCOMP")
	return &features.Features{MountOptions: []string{"rro"}, Linux: &features.Linux{Seccomp: &features.Seccomp{Enabled: &hasSeccomp}}}
}
