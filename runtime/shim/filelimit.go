package shim

import "syscall"

// fileLimit is the hard limit of open files that systemd gives to its services, and to
// containerd.
const fileLimit = 524288

// raiseFileLimit makes the shim independent of the limit of open files of the process that
// started it: with a low one, a pod could be started and never be removed. The Go runtime has
// raised the soft limit to the hard one already. What the shim starts inherits a raised limit;
// the containers of the embedded containerd have one of their own.
func raiseFileLimit() {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Max >= fileLimit {
		return
	}
	// Only root may. Without it the limit stays as it is.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fileLimit, Max: fileLimit})
}
