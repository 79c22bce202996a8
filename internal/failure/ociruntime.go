package failure

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrUnusable says that the container engine cannot be used at all: there is no runc, or the
// socket is missing or dead or belongs to something else.
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

// IsPermanentMessage reports whether a message is about the image, the command or the pod's spec, so
// that another try fails too.
func IsPermanentMessage(message string) bool {
	// crun has the C library's words, which are the same but for the first letter.
	lower := strings.ToLower(message)
	for _, s := range []string{
		"executable file not found in $path",
		"exec format error",
		"is a directory",
		"not a directory",
		"cannot be mounted because it is not of type proc", // a volume at /proc
		"is not a valid action for seccomp",
	} {
		if strings.HasSuffix(lower, s) {
			return true
		}
	}
	// exec: "/x": no such file or directory, permission denied. The same words about a mount
	// may be temporary.
	return strings.HasPrefix(message, "exec: ") || strings.HasPrefix(message, "exec ")
}

// noCause is the end of runc's message when the container's first process was killed before it
// could report a cause.
const noCause = ": %!w(<nil>)"

// RuntimeMessage removes what containerd, the shim and the OCI runtime have put around a message, and
// gives crun's messages about the command the words that runc has for them.
func RuntimeMessage(err error, command string) string {
	message := strings.TrimSuffix(err.Error(), Unclassified)
	message = strings.Replace(message, noCause, "", 1) // to which the shim may have added the cause
	for _, layer := range []string{
		"OCI runtime create failed: ", "OCI runtime start failed: ", "OCI runtime exec failed: ",
		"runc create failed: ", "runc start failed: ", "unable to start container process: ",
		"error during container init: ", "exec failed: ",
	} {
		if _, after, ok := strings.Cut(message, layer); ok {
			message = after
		}
	}
	return asRunc(strings.TrimSuffix(strings.TrimSpace(message), Unclassified), command)
}

// missingInCrun matches crun's message for a command that does not exist. Newer versions leave
// out $PATH for a path.
var missingInCrun = regexp.MustCompile("^executable file `(.*)` not found(?: in \\$PATH)?: No such file or directory$")

// asRunc translates crun's messages about the command, most of which do not name it.
func asRunc(message, command string) string {
	if m := missingInCrun.FindStringSubmatch(message); m != nil {
		if strings.Contains(m[1], "/") {
			return fmt.Sprintf("exec: %q: stat %s: no such file or directory", m[1], m[1])
		}
		return fmt.Sprintf("exec: %q: executable file not found in $PATH", m[1])
	}
	for _, prefix := range []string{"open executable: ", "exec: "} {
		if cause, ok := strings.CutPrefix(message, prefix); ok && !strings.HasPrefix(cause, `"`) {
			return fmt.Sprintf("exec: %q: %s", command, strings.ToLower(cause[:1])+cause[1:])
		}
	}
	return message
}
