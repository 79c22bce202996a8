package containerd_test

import (
	"os"
	"testing"

	"github.com/runonce/runonce/runtime/shim"
)

// The test's own program serves as the shim when none is embedded, and as the other
// process of some tests.
func TestMain(m *testing.M) {
	switch {
	case shim.Invoked(os.Args):
		shim.Main()
	case os.Getenv(helperEnv) != "":
		os.Exit(helper())
	default:
		os.Exit(m.Run())
	}
}
