package containerd_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/shim"
)

// The test's own program serves as the shim when none is embedded, and as the other
// process of some tests.
func TestMain(m *testing.M) {
	switch {
	case shim.Invoked(os.Args):
		os.Exit(shim.Main())
	case os.Getenv(helperEnv) != "":
		os.Exit(helper())
	case os.Getenv("RUNONCE_TEST_SERVES") != "":
		os.Exit(holdLock(os.Getenv("RUNONCE_TEST_SERVES")))
	default:
		os.Exit(m.Run())
	}
}

// holdLock is the process of TestServerIsStopped.
func holdLock(root string) int {
	unlock, err := server.TryLock(root)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := unlock(); err != nil {
		return 1
	}
	return 0
}
