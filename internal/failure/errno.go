package failure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
)

// errnos are the system's errors that matter to somebody here. Of an error of another process only
// the text is left.
var errnos = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EMFILE}

// Unclassified is what containerd adds to an error that is of none of its classes.
const Unclassified = ": unknown"

// WithErrno makes an error wrap the system's error with which a line of its text ends.
func WithErrno(err error) error {
	for line := range strings.Lines(err.Error()) {
		// crun begins it with a capital letter, as the C library does.
		line = strings.ToLower(strings.TrimRight(line, "\n"))
		for strings.HasSuffix(line, Unclassified) {
			line = strings.TrimSuffix(line, Unclassified)
		}
		for _, no := range errnos {
			if strings.HasSuffix(line, ": "+no.Error()) && !errors.Is(err, no) {
				return WithMessage(err.Error(), errors.Join(err, no))
			}
		}
	}
	return err
}

// passing are the errors of the system that pass by themselves.
var passing = []syscall.Errno{
	syscall.EAGAIN,                 // too many processes
	syscall.ENOMEM,                 // of the kernel; also a process namespace whose first process has ended
	syscall.ENFILE,                 // files that all of the machine has open
	syscall.EBUSY, syscall.ETXTBSY, // a cgroup or mount that is being removed, a program that is being written
	syscall.EINTR, syscall.ETIMEDOUT, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, // systemd, and processes that were killed
	syscall.ESRCH, syscall.ECHILD, // a process was killed
	syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.EHOSTDOWN, syscall.EREMOTEIO, // file systems of the network
}

// Passes reports whether an error is one of the system that passes by itself, or an interruption; of one
// that comes from another process, only the text is left.
func Passes(err error) bool {
	return isErrno(passing...)(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		endsInPassing(strings.TrimSuffix(err.Error(), Unclassified))
}

func endsInPassing(message string) bool {
	return slices.ContainsFunc(passing, func(no syscall.Errno) bool { return endsIn(message, no) })
}

// endsIn reports whether a message ends in an error of the system, in the words of Go or of the C library.
func endsIn(message string, no syscall.Errno) bool {
	return strings.HasSuffix(strings.ToLower(message), ": "+no.Error())
}
