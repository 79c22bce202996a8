package engine

import "time"

// Image is what the spec of a container needs to know of its image.
type Image struct {
	Ref        string // normalised reference, as the image store knows it
	ID         string // digest of the image configuration, "sha256:..."
	Digest     string // digest of the manifest or index that Ref names
	Size       int64  // bytes, unpacked layers not counted
	Created    time.Time
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string // "", "uid", "name", "uid:gid", ...
	WorkingDir string
	StopSignal string
	// Passwd and Group are the image's /etc/passwd and /etc/group, nil when it has none.
	// They turn names into ids without a mounted root filesystem.
	Passwd []byte
	Group  []byte
}
