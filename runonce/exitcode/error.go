package exitcode

import "fmt"

// Error is an error that means a certain exit code.
type Error struct {
	Code int
	Err  error // nil when all has been said
}

// Usagef returns an error for bad usage or bad input.
func Usagef(format string, args ...any) error { return Error{Usage, fmt.Errorf(format, args...)} }

// BadInput returns an error for manifests and archives that cannot be used.
func BadInput(err error) error { return Error{Usage, err} }

// Unusable returns an error for a node or an engine that cannot be used.
func Unusable(err error) error { return Error{Engine, err} }

// As returns the error that stands for an exit code, which is nil for success.
func As(code int, err error) error {
	if code == OK {
		return nil
	}
	return Error{code, err}
}

// Error returns the cause's text.
func (e Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e Error) Unwrap() error { return e.Err }
