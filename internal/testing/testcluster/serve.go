package testcluster

import (
	"context"
	"errors"
	"os"
	"testing"
)

// Serve runs a cluster without nodes until the end of the test, which is skipped unless make test-cluster
// runs it.
func Serve(t testing.TB) *Cluster {
	t.Helper()
	if os.Getenv("RUNONCE_TEST_CLUSTER") == "" {
		t.Skip("needs what make test-cluster builds")
	}
	c, err := Start(t.Context(), "rc-")
	t.Cleanup(func() {
		if err := errors.Join(c.Stop(context.WithoutCancel(t.Context())), c.Remove()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
