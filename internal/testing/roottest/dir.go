package roottest

import (
	"os"
	"syscall"
	"testing"
)

// Dir makes a directory in /run, as the path of a socket has to be short, that is removed at the end of the
// test. It is in memory if the disk is nearly full: the program would start nothing there, like the kubelet.
func Dir(t testing.TB, prefix string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	if disk.Bavail*100 > disk.Blocks*16 {
		return dir
	}
	if err := syscall.Mount(dir, dir, "tmpfs", 0, "mode=700"); err != nil {
		t.Fatalf("mounting a file system, as the disk of %s is nearly full: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
