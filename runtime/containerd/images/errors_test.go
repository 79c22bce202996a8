package images

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/runonce/runonce/internal/failure"
)

func TestNativeError(t *testing.T) {
	t.Parallel()
	remote := status.Error(codes.NotFound, "container a: not found")
	if err := NativeError(remote); !errdefs.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	if err := NativeError(fmt.Errorf("doing it: %w", remote)); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "doing it") {
		t.Errorf("%v", err)
	}
	// What is known already is kept.
	ours := &failure.Error{Why: failure.ReasonRunError, Final: true, Err: remote}
	var f *failure.Error
	if err := NativeError(fmt.Errorf("starting: %w", ours)); !errors.As(err, &f) {
		t.Errorf("%v", err)
	}
	if err := NativeError(nil); err != nil {
		t.Errorf("%v", err)
	}
}

// TestNativeErrno: of the system's errors only the text comes over gRPC.
func TestNativeErrno(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want syscall.Errno
	}{
		{"write /a/b: no space left on device", syscall.ENOSPC},
		{"failed to create task: write /a/b: no space left on device: unknown: unknown", syscall.ENOSPC},
		{"one: write /a/b: disk quota exceeded\nanother", syscall.EDQUOT},
		{"mkdir /a: read-only file system: unknown", syscall.EROFS},
		{"open /a: too many open files", syscall.EMFILE},
		// crun's
		{"OCI runtime create failed: mkdir `/a/b`: No space left on device: unknown", syscall.ENOSPC},
		{"mkdir `/a`: Read-only file system: unknown", syscall.EROFS},
		{"open /a: too many open files in system", 0},
		{"a file named no space left on device", 0},
		{"connection refused", 0},
	} {
		for _, remote := range []error{status.Error(codes.Unknown, tc.text), errgrpc.ToNative(status.Error(codes.Unknown, tc.text))} {
			err := NativeError(fmt.Errorf("doing it: %w", remote))
			var got syscall.Errno
			if errors.As(err, &got); got != tc.want {
				t.Errorf("%q: %v", tc.text, got)
			}
			if !strings.Contains(err.Error(), tc.text) || failure.IsPermanent(err) != (tc.want != 0) {
				t.Errorf("%q", err)
			}
		}
	}
}
