package containerd

import (
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/runtimeclass"
)

// findRuntimes makes the programs of the handlers absolute paths, and adds runc where no
// handler has its name.
func (o *Options) findRuntimes() error {
	o.Handlers = slices.Clone(o.Handlers)
	if !slices.ContainsFunc(o.Handlers, func(h runtimeclass.Handler) bool { return h.Name == runtimeclass.Default }) {
		o.Handlers = append(o.Handlers, runtimeclass.Handler{Name: runtimeclass.Default, Binary: o.RuncPath})
	}
	for i := range o.Handlers {
		h := &o.Handlers[i]
		if h.Shim != "" {
			continue
		}
		var err error
		if h.Binary, err = findProgram(h.Binary); err != nil {
			return err
		}
	}
	return nil
}

// findProgram looks where a boot script's PATH may not. An empty name means runc.
func findProgram(name string) (string, error) {
	if name == "" {
		name = "runc"
	}
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin", "/sbin"} {
		if err == nil || filepath.Base(name) != name {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", errs.Unusablef("finding the OCI runtime %q: %w", name, err)
	}
	return path, nil
}
