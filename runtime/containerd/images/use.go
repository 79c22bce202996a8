package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// usePath is a file whose time is when the image was used last: to write that to containerd's metadata would cost a
// transaction for each start.
func (c *Store) usePath(d digest.Digest) string { return filepath.Join(c.users, d.Encoded()+".used") }

// noteUse notes that the image is used now. Without that, it counts as used when it was pulled.
func (c *Store) noteUse(d digest.Digest) {
	now := time.Now()
	if err := os.Chtimes(c.usePath(d), now, now); errors.Is(err, fs.ErrNotExist) {
		_ = os.MkdirAll(c.users, 0o700)
		_ = os.WriteFile(c.usePath(d), nil, 0o600)
	}
}

// lastUse returns when the image was used last, zero if that is not known.
func (c *Store) lastUse(d digest.Digest) time.Time {
	info, err := os.Stat(c.usePath(d))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
