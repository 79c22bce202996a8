package failure

import (
	"errors"
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
