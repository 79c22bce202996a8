package link

import (
	"fmt"
	"os/exec"
	"path/filepath"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	shimoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/runtimeclass"
)

// Runtime is what the containers of a handler are created with.
type Runtime struct {
	containers.RuntimeInfo
	// inSlices are the options for containers whose cgroups are scopes of systemd.
	inSlices typeurl.Any
	// Foreign says that the shim is not ours: it writes neither logs nor records.
	Foreign bool
}

// Runtime returns that of a handler, the default one when name is empty, for a container whose
// cgroup is a scope of systemd or is not. An error says that there is none, as containerd's
// CRI plugin says it.
func (s *Session) Runtime(name string, inSlice bool) (Runtime, error) {
	if name == "" {
		name = runtimeclass.Default
	}
	r, ok := s.runtimes[name]
	if !ok {
		return r, fmt.Errorf("no runtime for %q is configured", name)
	}
	if inSlice {
		r.Options = r.inSlices
	}
	return r, nil
}

// setRuntimes works out what the handlers stand for.
func (s *Session) setRuntimes(o Options) error {
	s.runtimes = map[string]Runtime{}
	for _, h := range o.Handlers {
		r, err := s.runtime(h, o)
		if err != nil {
			return fmt.Errorf("preparing runtime handler %q: %w", h.Name, err)
		}
		s.runtimes[h.Name] = r
	}
	return nil
}

// RuntimeRoot is where the OCI runtimes of the embedded containerd keep their state, below a
// directory for each namespace.
func RuntimeRoot(state string) string { return filepath.Join(state, "runc") }

func (s *Session) runtime(h runtimeclass.Handler, o Options) (Runtime, error) {
	if h.Shim != "" {
		return s.foreignRuntime(h)
	}
	opts := &runcoptions.Options{BinaryName: h.Binary}
	if o.Address == "" {
		// A containerd of the system may use the same namespace and the same names.
		opts.Root = RuntimeRoot(o.State)
	}
	r := Runtime{RuntimeInfo: containers.RuntimeInfo{Name: s.Shim}}
	if s.Logger {
		r.Name, r.Foreign = stockRuntime, true
	}
	return r, r.setOptions(opts)
}

// foreignRuntime leaves the start of the shim to containerd, which must find it: the embedded
// one in our PATH, a daemon in its own.
func (s *Session) foreignRuntime(h runtimeclass.Handler) (Runtime, error) {
	if s.Spawn != nil {
		if _, err := exec.LookPath(h.Program()); err != nil {
			return Runtime{}, errs.Unusablef("looking for its shim: %w", err)
		}
	}
	r := Runtime{Foreign: true, RuntimeInfo: containers.RuntimeInfo{Name: h.Shim}}
	if h.ConfigPath != "" || h.TypeURL != "" {
		packed, err := typeurl.MarshalAny(&shimoptions.Options{TypeUrl: h.TypeURL, ConfigPath: h.ConfigPath})
		if err != nil {
			return Runtime{}, fmt.Errorf("encoding its options: %w", err)
		}
		// Other shims find out themselves what a cgroupsPath means.
		r.Options, r.inSlices = packed, packed
		return r, nil
	}
	if filepath.Base(h.Program()) != stockProgram {
		return r, nil
	}
	return r, r.setOptions(&runcoptions.Options{})
}

// setOptions sets those of an OCI runtime below a shim that takes containerd's.
func (r *Runtime) setOptions(o *runcoptions.Options) error {
	packed, err := typeurl.MarshalAny(o)
	if err != nil {
		return fmt.Errorf("encoding its options: %w", err)
	}
	o.SystemdCgroup = true
	inSlices, err := typeurl.MarshalAny(o)
	if err != nil {
		return fmt.Errorf("encoding its options: %w", err)
	}
	r.Options, r.inSlices = packed, inSlices
	return nil
}
