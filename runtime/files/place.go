package files

import "errors"

// Kind is what is at a path.
type Kind int

// The kinds. A link is what it leads to.
const (
	Absent Kind = iota
	File
	Directory
	Special // a device, a socket or a named pipe
)

var (
	errNotDirectory = errors.New("not a directory")
	errNoDirectory  = errors.New("the directory does not exist")
	errOntoFile     = errors.New("cannot overwrite a file with a directory")
	errOntoSpecial  = errors.New("it is a device, a socket or a named pipe, which is not overwritten")
)

// place decides whether something is copied into the directory at the target, or to the target itself. The rules are
// those of "docker cp". slash says that the target's path can only be that of a directory.
func place(top Top, dir bool, at Kind, slash bool) (into bool, err error) {
	switch {
	case at == Directory:
		return true, nil
	case top.Archive && at == Absent:
		return false, errNoDirectory
	case top.Archive:
		return false, errNotDirectory
	case at == Special:
		return false, errOntoSpecial
	case at == File && dir:
		return false, errOntoFile
	case at == File && slash:
		return false, errNotDirectory
	case at == Absent && slash && !dir:
		return false, errNoDirectory
	}
	return false, nil
}
