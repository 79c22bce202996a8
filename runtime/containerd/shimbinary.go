package containerd

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// embedded is the directory that the shim is embedded from.
const embedded = "shim"

//go:embed shim
var shimFiles embed.FS

// unpackShim makes sure that the shim is at bin/<sum>/runonce-shim, and returns its path. Running
// containers keep their shim there when the main program is replaced. A program without an
// embedded shim uses a copy of itself.
func unpackShim(bin string) (string, error) { return unpack(shimFiles, bin) }

func unpack(from fs.FS, bin string) (string, error) {
	text, err := fs.ReadFile(from, embedded+"/"+protocol.SumName)
	if errors.Is(err, fs.ErrNotExist) {
		return copySelf(bin)
	}
	if err != nil {
		return "", fmt.Errorf("reading the embedded shim: %w", err)
	}
	var sum protocol.Sum
	if _, err := fmt.Sscan(string(text), &sum.SHA256, &sum.Size); err != nil {
		return "", fmt.Errorf("reading the embedded shim's checksum: %w", err)
	}
	path := filepath.Join(bin, sum.SHA256, protocol.Program)
	if info, err := os.Stat(path); err == nil && info.Size() == sum.Size {
		return path, nil
	}
	packed, err := fs.ReadFile(from, embedded+"/"+protocol.PackedName)
	if err != nil {
		return "", fmt.Errorf("reading the embedded shim: %w", err)
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return "", fmt.Errorf("unpacking the shim: %w", err)
	}
	defer r.Close()
	hash := sha256.New()
	return path, install(path, io.TeeReader(r, hash), func() error {
		if got := hex.EncodeToString(hash.Sum(nil)); got != sum.SHA256 {
			return fmt.Errorf("its SHA-256 is %s, want %s", got, sum.SHA256)
		}
		return nil
	})
}

// copySelf copies the running program. Its size and modification time identify it: hashing it
// on every start would cost more than the shim saves.
func copySelf(bin string) (string, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("finding the running program: %w", err)
	}
	defer func() { _ = self.Close() }()
	info, err := self.Stat()
	if err != nil {
		return "", fmt.Errorf("finding the running program: %w", err)
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%d %d", info.Size(), info.ModTime().UnixNano()))
	path := filepath.Join(bin, hex.EncodeToString(id[:]), protocol.Program)
	if have, err := os.Stat(path); err == nil && have.Size() == info.Size() {
		return path, nil
	}
	return path, install(path, self, func() error { return nil })
}

// install writes an executable file atomically.
func install(path string, r io.Reader, check func() error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the shim's directory: %w", err)
	}
	// The pause process runs it as the pod's user; the directory keeps other users out. It is on disk
	// before it has its name: a part of a program would stay after a loss of power, and start nothing.
	f, err := atomicfile.Create(path, 0o755)
	if err != nil {
		return fmt.Errorf("unpacking the shim: %w", err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = check()
	}
	if err = errors.Join(err, f.Chmod(0o755)); err != nil { // whatever the umask is
		return errors.Join(fmt.Errorf("unpacking the shim: %w", err), f.Abort())
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("unpacking the shim: %w", err)
	}
	return nil
}
