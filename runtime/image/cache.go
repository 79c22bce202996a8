package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"

	"github.com/runonce/runonce/internal/atomicfile"
)

// Cache is a directory that has the images of archives as Refs returns them: to find them in a
// compressed archive, all of it has to be read.
type Cache string

// cached is what is known of an archive as long as its file is the same.
type cached struct {
	Path  string            `json:"path"`
	State fileState         `json:"state"`
	Refs  map[string]string `json:"refs"`
}

// fileState changes with the content of a file, as far as that can be told without reading it.
type fileState struct {
	Inode, Size, Modified, Changed int64
}

func stateOf(path string) (fileState, bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fileState{}, false
	}
	return fileState{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, true
}

// Load returns what was stored of the archive, if its file has not changed since.
func (d Cache) Load(a Archive) (refs map[string]string, ok bool) {
	state, ok := stateOf(a.Path)
	if !ok {
		return nil, false
	}
	var c cached
	data, err := os.ReadFile(d.file(a))
	if err != nil || json.Unmarshal(data, &c) != nil || c.Path != a.Path || c.State != state {
		return nil, false
	}
	return c.Refs, true
}

// Store keeps the images of an archive. A directory is not kept: its index is a file of its own.
func (d Cache) Store(a Archive, refs map[string]string) error {
	state, ok := stateOf(a.Path)
	if !ok {
		return nil
	}
	data, err := json.Marshal(cached{a.Path, state, refs})
	if err == nil {
		err = os.MkdirAll(string(d), 0o700)
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(d.file(a), data, 0o600)
}

func (d Cache) file(a Archive) string {
	sum := sha256.Sum256([]byte(a.Path))
	return filepath.Join(string(d), hex.EncodeToString(sum[:16])+".json")
}
