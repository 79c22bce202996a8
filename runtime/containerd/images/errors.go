package images

import (
	"errors"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"github.com/runonce/runonce/internal/failure"
)

// NativeError turns an error of containerd's API, which may have come over gRPC, into one that
// errdefs and the rest of this program understand.
func NativeError(err error) error {
	var remote interface{ GRPCStatus() *status.Status }
	var ours *failure.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	if errors.As(err, &remote) {
		err = errgrpc.ToNative(err)
	}
	return failure.WithErrno(err)
}

// IgnoreNotFound returns the error as NativeError does, but nil when its class is NotFound.
func IgnoreNotFound(err error) error {
	if err = NativeError(err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
