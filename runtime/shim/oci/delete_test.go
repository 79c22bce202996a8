package oci

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDelete: the runtime is run only for what the shim cannot be sure of.
func TestDelete(t *testing.T) {
	t.Parallel()
	hooked := plainSpec("/runonce-test-none/c")
	hooked.Hooks.Poststop = make([]struct{ Path string }, 1)
	intel := plainSpec("/runonce-test-none/c")
	intel.Linux.IntelRdt = &struct{}{}
	for name, c := range map[string]struct {
		spec    Spec
		systemd bool
		files   []string
	}{
		"no state":             {spec: plainSpec("/runonce-test-none/c")},
		"no cgroup":            {spec: plainSpec("/runonce-test-none/c"), files: []string{"status"}},
		"a cgroup of others":   {spec: plainSpec("/runonce-test-none"), files: []string{"status"}},
		"an unknown file":      {spec: plainSpec("/runonce-test-none/c"), files: []string{"status", "notify"}},
		"a hook":               {spec: hooked, files: []string{"state.json"}},
		"a class of resources": {spec: intel, files: []string{"state.json"}},
		"a unit of systemd":    {spec: plainSpec("/runonce-test-none/c"), systemd: true, files: []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := filepath.Join(t.TempDir(), "ran")
			r := script(t, "touch "+ran)
			r.SystemdCgroup = c.systemd
			state(t, r, c.files...)
			if err := r.Delete(t.Context(), "c", c.spec); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(ran); err != nil {
				t.Errorf("the runtime was not run: %v", err)
			}
		})
	}
}

func plainSpec(cgroup string) (s Spec) {
	s.Linux.CgroupsPath = cgroup
	return s
}

// state makes the directory of a container's state.
func state(t *testing.T, r *Runtime, files ...string) string {
	t.Helper()
	dir := filepath.Join(r.Root, "c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
