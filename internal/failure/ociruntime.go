package failure

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
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
	if isTransient(message) {
		return false
	}
	// crun has the C library's words, which are the same but for the first letter.
	lower := strings.ToLower(message)
	for _, s := range []string{
		"executable file not found in $path",
		"exec format error",
		"is a directory",
		"not a directory",
		"cannot be mounted because it is not of type proc", // a volume at /proc
		"cannot be mounted because it is inside /proc",
		"is not a valid action for seccomp",
	} {
		if strings.HasSuffix(lower, s) {
			return true
		}
	}
	return isExec(message)
}

// isExec reports whether a message is about the command: exec: "/x": no such file or directory. The same
// words about a mount may be temporary.
func isExec(message string) bool {
	return strings.HasPrefix(message, "exec: ") || strings.HasPrefix(message, "exec ")
}

// created and started are how the shims of containerd, and ours, mark what an OCI runtime has said of a
// container. All else comes from containerd, from the shim, or from the connection to them.
const (
	created = "OCI runtime create failed: "
	started = "OCI runtime start failed: "
)

// IsRefusal reports whether an error says that an OCI runtime has refused to start a container, and not
// for a cause that is known to pass.
func IsRefusal(err error) bool {
	text := err.Error()
	return (strings.Contains(text, created) || strings.Contains(text, started)) && !isTransient(RuntimeMessage(err, ""))
}

// LacksMemory reports whether a message says that a container could not be started within its memory
// limit, if it has one.
func LacksMemory(message string) bool {
	// The kernel makes no cgroup below one that is full.
	return outOfMemory().MatchString(message) || cgroupDir().MatchString(message) && endsIn(message, syscall.ENOMEM)
}

// pattern returns a function that compiles a regular expression when it is called for the first time: most
// commands meet no error, and start without them.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// outOfMemory matches what runc, our shim and crun say of a memory limit.
var outOfMemory = pattern(`(?i)container init was OOM-killed|unable to set memory limit to |the memory limit could be too low`)

// wasKilled matches what is left of a container whose first process was killed before its start.
var wasKilled = pattern(`(?i)error during container init$|\bEOF$|connection reset by peer$|read from (?:the init process|sync socket)$` +
	`|cannot start a container that has stopped$|\x60 is not running$`) // runc and crun

// WasKilled reports whether a message says that a container's first process was killed before it was
// started, and not by whom.
func WasKilled(message string) bool { return wasKilled().MatchString(message) }

// cgroupDir matches what runc and crun say when they cannot make a cgroup.
var cgroupDir = pattern("(?i)(?:mkdir|creating cgroup directory) \x60?/sys/fs/cgroup/")

// passingTexts are what is left of runtimes that were killed or interrupted, or that systemd has not
// answered. Who is killed says little or nothing.
var passingTexts = pattern("(?i)" + strings.Join([]string{
	`^$`, // runc's cause was that it had none
	`\b(?:signal: \w+|exit status \d+|context canceled|context deadline exceeded)$`,
	`container with (?:given )?id (?:already )?exists|\x60 already exists`, // of a try that was killed
	`^unable to retrieve OCI runtime error `,                               // containerd: the runtime has written no log
	`unable to start unit |to systemd\b|\bsystemd to |\bdbus\b|\bsd-bus\b|timed out|timeout`,
}, "|"))

// isTransient reports whether a message of an OCI runtime has a cause that is known to pass.
func isTransient(message string) bool {
	if outOfMemory().MatchString(message) {
		return false
	}
	// The source of a mount, or a namespace, may be made in a moment. A program will not.
	return endsInPassing(message) || endsIn(message, syscall.ENOENT) && !isExec(message) ||
		passingTexts().MatchString(message) || WasKilled(message)
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
		created, started, "OCI runtime exec failed: ",
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
var missingInCrun = pattern("^executable file `(.*)` not found(?: in \\$PATH)?: No such file or directory$")

// asRunc translates crun's messages about the command, most of which do not name it.
func asRunc(message, command string) string {
	if m := missingInCrun().FindStringSubmatch(message); m != nil {
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

// CommandExitCode returns the exit code that a shell has for a command that could not be started: 127 if it does not
// exist, 126 if it cannot be run. It is false if the error is about something else.
func CommandExitCode(err error) (code int, ok bool) {
	message := strings.ToLower(RuntimeMessage(err, ""))
	_, about, isExec := strings.Cut(message, "exec: ")
	if !isExec {
		_, about, isExec = strings.Cut(message, "exec ")
	}
	switch {
	case !isExec:
		return 0, false
	case strings.Contains(about, "executable file not found"), strings.HasSuffix(about, "no such file or directory"):
		return 127, true
	case strings.HasSuffix(about, "permission denied"), strings.HasSuffix(about, "exec format error"), strings.HasSuffix(about, "is a directory"):
		return 126, true
	}
	return 0, false
}

// failedExec matches what runc and crun say when the kernel cannot run a program that exists. Once they have
// started the container, they say so in its log.
var failedExec = pattern("(?i)\\bexec (?:container process (?:\\(missing dynamic library\\?\\) )?)?\x60?(/[^\x60:]+)\x60?: (no such file or directory|exec format error)\\b")

// ExecAdvice says what is wrong with a program that exists and that the kernel cannot run, empty for any other
// message.
func ExecAdvice(message string) string {
	m := failedExec().FindStringSubmatch(message)
	switch {
	case m == nil:
		return ""
	case strings.EqualFold(m[2], "exec format error"):
		return fmt.Sprintf("%s is neither a program for this machine nor a script that begins with #!", m[1])
	}
	return fmt.Sprintf("%s exists, but not what it needs to run: the interpreter that its first line names, which must not end in a carriage return (CRLF), or its dynamic loader", m[1])
}
