// Package fault marks errors that no retry mends.
package fault

import (
	"errors"
	"fmt"
)

// permanent is an error whose cause lies in the manifest or in what is installed.
type permanent struct{ err error }

func (p *permanent) Error() string   { return p.err.Error() }
func (p *permanent) Unwrap() error   { return p.err }
func (p *permanent) Permanent() bool { return true }

// Permanent returns the error with a method Permanent that returns true.
func Permanent(err error) error { return &permanent{err} }

// Permanentf is Permanent of fmt.Errorf.
func Permanentf(format string, args ...any) error { return Permanent(fmt.Errorf(format, args...)) }

// IsPermanent reports whether the error, or one that it wraps, has a method Permanent that
// returns true.
func IsPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}
