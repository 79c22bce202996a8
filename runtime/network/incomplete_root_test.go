package network

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// TestIncompleteRecord: what a pod has of the network is released, although its record does not say
// what that is. Until then nobody takes it away, and another pod keeps what it has.
func TestIncompleteRecord(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "newer": `{"version":2,"pod":{"metadata":{"uid":"uid-a"}},"attachment":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			eachFirewall(t, func(t *testing.T, m *Manager) {
				other := withHostPort(t, "other")
				ensure(t, m, other)
				before := traces(t, m)
				a := withHostPort(t, "a")
				ensure(t, m, a)
				if err := os.WriteFile(filepath.Join(m.o.Records.Dir(a.UID), "pod.json"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				// As another version may have it.
				pins := m.files.pins(string(a.UID))
				if err := os.Mkdir(filepath.Join(pins, "more"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := namespaces.Make(filepath.Join(pins, "more"), []namespaces.Kind{namespaces.IPC}, ""); err != nil {
					t.Fatal(err)
				}
				if err := New(m.o).collectOnce(t.Context()); err != nil {
					t.Error(err)
				}
				if got := leases(t, m); len(got) != 2 {
					t.Errorf("leases %q, want two", got)
				}
				if err := holding(m).Remove(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, traces(t, m)); diff != "" {
					t.Errorf("left of the pod (-before +after):\n%s", diff)
				}
			})
		})
	}
}
