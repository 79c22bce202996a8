package cmd_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// TestDownByFaultyManifest: an error in its file does not make a pod impossible to stop.
func TestDownByFaultyManifest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[sleep]")
		invoke(t, m, "run", pod, "--node", nodeFile())
		text, err := os.ReadFile(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pod, []byte(strings.Replace(string(text), "args:", "argz:", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "default/web removed\n" {
			t.Errorf("%+v", got)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "" {
			t.Errorf("once more: %+v", got)
		}
		if got := invoke(t, m, "down", "--all"); got.code != 0 {
			t.Errorf("%+v", got)
		}
	})
}
