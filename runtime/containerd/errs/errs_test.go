package errs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRuncMessage(t *testing.T) {
	t.Parallel()
	const create = "failed to create task: failed to create shim task: OCI runtime create failed: runc create failed: "
	for _, tc := range []struct {
		in, want  string
		permanent bool
	}{
		{
			in:        create + `unable to start container process: exec: "nope": executable file not found in $PATH: unknown`,
			want:      `exec: "nope": executable file not found in $PATH`,
			permanent: true,
		},
		{
			in:        create + `unable to start container process: error during container init: exec: "/x": permission denied: unknown`,
			want:      `exec: "/x": permission denied`,
			permanent: true,
		},
		{
			in:        create + `unable to start container process: exec: "/etc": is a directory: unknown`,
			want:      `exec: "/etc": is a directory`,
			permanent: true,
		},
		{
			in:   create + `unable to start container process: error during container init: error mounting "/no" to rootfs at "/data": stat /no: no such file or directory: unknown`,
			want: `error mounting "/no" to rootfs at "/data": stat /no: no such file or directory`,
		},
		{
			in:   create + "unable to start container process: error during container init: %!w(<nil>): unknown",
			want: "error during container init",
		},
		{
			in:   "failed to start shim: something else",
			want: "failed to start shim: something else",
		},
	} {
		err := status.Error(codes.Unknown, tc.in)
		got := RuncMessage(err)
		if got != tc.want {
			t.Errorf("%q", got)
		}
		if IsPermanentMessage(got) != tc.permanent {
			t.Errorf("%q: permanent %v", got, !tc.permanent)
		}
	}
}

func TestNative(t *testing.T) {
	t.Parallel()
	remote := status.Error(codes.NotFound, "container a: not found")
	if err := Native(remote); !errdefs.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	if err := Native(fmt.Errorf("doing it: %w", remote)); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "doing it") {
		t.Errorf("%v", err)
	}
	if err := NotFound(Native(remote)); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := NotFound(Native(remote)); !errdefs.IsNotFound(err) || strings.Count(err.Error(), "not found") != 1 {
		t.Errorf("%v", err)
	}
	// What is known already is kept.
	ours := &failure.Error{Why: failure.ReasonRunError, Final: true, Err: remote}
	var f *failure.Error
	if err := Native(fmt.Errorf("starting: %w", ours)); !errors.As(err, &f) {
		t.Errorf("%v", err)
	}
	if err := Native(nil); err != nil {
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
		{"open /a: too many open files in system", 0},
		{"a file named no space left on device", 0},
		{"connection refused", 0},
	} {
		for _, remote := range []error{status.Error(codes.Unknown, tc.text), errgrpc.ToNative(status.Error(codes.Unknown, tc.text))} {
			err := Native(fmt.Errorf("doing it: %w", remote))
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

func TestUnusableIsErrUnusable(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := Unusablef("connecting: %w", cause)
	if !errors.Is(err, ErrUnusable) || !errors.Is(err, cause) || err.Error() != "connecting: cause" {
		t.Errorf("%v", err)
	}
}
