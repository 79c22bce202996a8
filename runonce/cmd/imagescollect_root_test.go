package cmd_test

import (
	"testing"

	"github.com/runonce/runonce/internal/testing/registry"
)

// TestImageGC: a run that needs space removes images that no pod uses and that were not used for some time.
func TestImageGC(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		server := registry.Start(t, registry.Options{})
		run := func(name string, flags ...string) (pods string) {
			t.Helper()
			ref := server.Host + "/" + name + ":1"
			server.Push(t, name+":1", boxImage(t, ref, 1<<20))
			pods = podDir(t, oncePod(name, ref))
			m.once(t, append([]string{"run", "--until", "completed", pods}, flags...)...)
			return pods
		}
		check := func(when string, want map[string]bool) {
			t.Helper()
			listed := m.images(t)
			for name, want := range want {
				if _, ok := listed[server.Host+"/"+name+":1"]; ok != want {
					t.Errorf("%s: %s is there: %v", when, name, ok)
				}
			}
		}
		m.once(t, "down", run("unused"))
		run("ended")
		run("young", "--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0")
		check("images are kept for two minutes", map[string]bool{"unused": true, "ended": true, "young": true})
		run("disabled", "--image-gc-high-threshold", "100", "--image-gc-min-age", "0s")
		check("nothing is removed", map[string]bool{"unused": true})
		run("needs", "--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0", "--image-gc-min-age", "0s")
		check("unused images go", map[string]bool{"unused": false, "ended": true, "young": true, "disabled": true, "needs": true})
		if i := m.images(t)[boxRef]; !i.Pinned {
			t.Errorf("an image from an archive: %+v", i)
		}
	})
}
