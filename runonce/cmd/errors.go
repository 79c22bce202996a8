package cmd

import (
	"fmt"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error // nil if there is nothing more to print
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// usagef returns an error for invalid usage or input.
func usagef(format string, args ...any) error { return badInput(fmt.Errorf(format, args...)) }

// badInput returns an error for manifests and archives that cannot be used.
func badInput(err error) error { return exitError{report.ExitUsage, err} }

// unusable returns an error for a node or an engine that cannot be used.
func unusable(err error) error { return exitError{report.ExitEngine, failure.WithAdvice(err)} }

// exitWith returns the error for an exit code, which is nil for success.
func exitWith(code int, err error) error {
	if code == report.ExitOK {
		return nil
	}
	return exitError{code, err}
}

// inputError is the errors of the manifests and what they have led to.
type inputError struct {
	problems manifests.Diagnostics
	result   string
}

func (e *inputError) Error() string { return e.result + ": " + e.problems.Error() }

func (e *inputError) Unwrap() error { return e.problems }
