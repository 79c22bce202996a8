// Package umask keeps the file mode creation mask of the caller away from pods, and applies it to
// the files that the caller has asked for.
package umask

import (
	"io/fs"
	"syscall"
)

// usual is what containerd and its image layers are used to.
const usual = 0o022

// given is the mask of the caller.
var given int

// Set replaces the mask of this process and of those that it starts. With 077, for example, which
// many hardened machines have for root, the directories of a container could be entered by root
// alone.
func Set() { given = syscall.Umask(usual) }

// Mode returns the mode of a file that the caller has asked for: without what the caller's mask
// takes away.
func Mode(mode fs.FileMode) fs.FileMode { return mode &^ fs.FileMode(given) }
