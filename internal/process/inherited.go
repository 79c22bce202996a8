package process

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// usual is the umask that containerd and its image layers are used to.
const usual = 0o022

// umask is that of the caller.
var umask int

// Isolate changes what programs inherit that this process starts: the umask, with which only root
// could enter the directories of containers if it is 077, as on many hardened machines, and open files,
// such as the lock of "flock FILE runonce", which would stay locked as long as pods run.
func Isolate() {
	umask = syscall.Umask(usual)
	open, _ := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// FileMode returns the mode of a file that the caller has asked for: without what the caller's umask
// takes away.
func FileMode(mode fs.FileMode) fs.FileMode { return mode &^ fs.FileMode(umask) }
