package process

import (
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// Apart calls f in a goroutine that has a thread of the system for itself. The thread ends with f, so f may change what
// belongs to it, such as its mount namespace. It is not the first one of the process, which never ends and stands for
// the process in /proc.
func Apart(f func()) {
	go func() {
		goruntime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		ended := make(chan struct{})
		Apart(func() {
			defer close(ended)
			f()
		})
		<-ended // so that the other goroutine gets another thread
		goruntime.UnlockOSThread()
	}()
}
