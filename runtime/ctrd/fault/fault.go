// Package fault holds the errors of the engine: what containerd and runc say, in the terms
// of this program.
package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
)

// ErrUnusable says that the container engine cannot be used at all: there is no runc, the
// socket is missing or dead, something else serves it.
var ErrUnusable = errors.New("the container engine cannot be used")

// Unusable is an ErrUnusable with its cause in one line.
type Unusable struct{ Cause error }

func (e Unusable) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e Unusable) Unwrap() error { return e.Cause }

// Is reports whether t is ErrUnusable.
func (e Unusable) Is(t error) bool { return t == ErrUnusable }

// Unusablef makes an Unusable as fmt.Errorf makes an error.
func Unusablef(format string, args ...any) error {
	return Unusable{Cause: fmt.Errorf(format, args...)}
}

// The reasons of the kubelet (pkg/kubelet/container/sync_result.go, images/types.go).
const (
	ReasonCreate       = "CreateContainerError"
	ReasonRun          = "RunContainerError"
	ReasonInvalidImage = "InvalidImageName"
	ReasonPull         = "ErrImagePull"
)

// Error is an error with a reason that may be beyond any retry.
type Error struct {
	Why   string // one of the Reason constants
	Final bool   // no retry can mend it
	Cause error
}

func (e *Error) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Reason returns the reason, a single word in CamelCase.
func (e *Error) Reason() string { return e.Why }

// Permanent says whether no retry can mend the cause.
func (e *Error) Permanent() bool { return e.Final }

// Told is an error with a shorter message.
type Told struct {
	Message string
	Cause   error
}

func (e *Told) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Told) Unwrap() error { return e.Cause }

// Native turns an error of containerd's API, which may have come over gRPC, into one that
// errdefs and the rest of this program understand.
func Native(err error) error {
	var remote interface{ GRPCStatus() *status.Status }
	var ours *Error
	if !errors.As(err, &remote) || errors.As(err, &ours) {
		return err
	}
	return errgrpc.ToNative(err)
}

// NotFound wraps ErrNotFound around an error that says so in containerd's way.
func NotFound(err error) error {
	var ours *Error
	if !errdefs.IsNotFound(err) || errors.Is(err, engine.ErrNotFound) || errors.As(err, &ours) {
		return err
	}
	return &Told{Message: err.Error(), Cause: errors.Join(engine.ErrNotFound, err)}
}

// Gone reports whether an error means that what was to be removed is not there.
func Gone(err error) bool { return err == nil || errdefs.IsNotFound(Native(err)) }

// Hopeless reports whether a message of runc's is one that the same image and command always
// give.
func Hopeless(message string) bool {
	for _, s := range []string{
		"executable file not found in $PATH",
		"exec format error",
		"is a directory",
		"not a directory",
	} {
		if strings.HasSuffix(message, s) {
			return true
		}
	}
	// exec: "/x": no such file or directory, permission denied. The same words about a
	// mount may be true only for now.
	return strings.HasPrefix(message, "exec: ") || strings.HasPrefix(message, "exec ")
}

// noCause is what runc's message ends in when the container's first process was killed
// before it could tell anything.
const noCause = ": %!w(<nil>)"

// RuncMessage cuts the layers that containerd, the shim and runc wrapped around a message.
func RuncMessage(err error) string {
	message := strings.TrimSuffix(Native(err).Error(), ": unknown")
	message = strings.TrimSuffix(message, noCause)
	for _, layer := range []string{
		"OCI runtime create failed: ", "OCI runtime start failed: ", "OCI runtime exec failed: ",
		"runc create failed: ", "runc start failed: ", "container_linux.go", "unable to start container process: ",
		"error during container init: ", "exec failed: ",
	} {
		if _, after, ok := strings.Cut(message, layer); ok && layer != "container_linux.go" {
			message = after
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(message), ": unknown")
}
