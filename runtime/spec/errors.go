package spec

import "fmt"

// The reasons of errors, in the kubelet's words (pkg/kubelet/kuberuntime).
const (
	// ReasonConfigError says that the manifest asks for what is not there or not allowed.
	ReasonConfigError = "CreateContainerConfigError"
	// ReasonCreateError says that the container cannot be made from its image.
	ReasonCreateError = "CreateContainerError"
)

// ConfigError is a fault of the manifest or of the image that no retry can mend.
type ConfigError struct {
	Why string // one of the Reason constants
	Err error
}

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Reason returns the word that the kubelet shows as the container's waiting reason.
func (e *ConfigError) Reason() string { return e.Why }

// Permanent is true: the inputs of a container do not change in a run.
func (e *ConfigError) Permanent() bool { return true }

func configErrorf(format string, args ...any) error {
	return &ConfigError{Why: ReasonConfigError, Err: fmt.Errorf(format, args...)}
}

func createErrorf(format string, args ...any) error {
	return &ConfigError{Why: ReasonCreateError, Err: fmt.Errorf(format, args...)}
}
