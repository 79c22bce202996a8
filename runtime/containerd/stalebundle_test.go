package containerd

import (
	"errors"
	"testing"
)

func TestBundlesDir(t *testing.T) {
	t.Parallel()
	const dir = "/run/containerd/io.containerd.runtime.v2.task"
	for text, want := range map[string]string{
		"mkdir " + dir + "/runonce/a: file exists":                                     dir,
		"rpc error: failed to start shim: mkdir " + dir + "/runonce/a: file exists: x": dir,
		"mkdir " + dir + "/runonce/b: file exists":                                     "",
		"mkdir " + dir + "/other/a: file exists":                                       "",
		"mkdir " + dir + "/runonce/a/rootfs: file exists":                              "",
		"mkdir /somewhere/runonce/a: file exists":                                      "",
		"mkdir " + dir + "/runonce/a: permission denied":                               "",
	} {
		if got := bundlesDir(errors.New(text), "runonce", "a"); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
