package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"golang.org/x/sys/unix"
)

// HasOverlays reports whether the server of a root directory mounts overlays. The server has started.
func HasOverlays(root string) bool {
	_, err := os.Stat(filepath.Join(root, overlayPlugin))
	return err == nil
}

// overlayPlugin is the name of the snapshotter, and of its directory.
const overlayPlugin = string(plugins.SnapshotPlugin) + ".overlayfs"

type initFunc = func(*plugin.InitContext) (any, error)

// unlessUnusable returns a function that initializes the snapshotter for overlays, if they can be
// mounted with their files in its directory.
func unlessUnusable(overlayfs initFunc, o Options) initFunc {
	return func(ic *plugin.InitContext) (any, error) {
		dir := ic.Properties[plugins.PropertyRootDir]
		if _, err := os.Stat(dir); err != nil { // it has not been used before
			if err := TryOverlay(filepath.Dir(dir)); err != nil {
				o.Log.Info("could not use overlayfs; each container gets a copy of its image", "error", err)
				return nil, plugin.ErrSkipPlugin
			}
		}
		return overlayfs(ic)
	}
}

// TryOverlay returns an error if overlays cannot have their files in the directory. The kernel may not
// have overlayfs, and an overlay, such as the root of a container, cannot have those of another.
// Nothing is mounted that could be left, and what is made there is removed.
func TryOverlay(dir string) error {
	dir = filepath.Join(dir, "overlay-trial")
	overlay, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) {
			return nil // Linux before 5.2
		}
		return fmt.Errorf("opening overlayfs: %w", err)
	}
	// What is left of a trial says nothing about overlays, nor does a full disk.
	defer func() { _, _ = unix.Close(overlay), os.RemoveAll(dir) }()
	for _, layer := range []string{"lowerdir", "upperdir", "workdir"} {
		path := filepath.Join(dir, layer)
		if os.MkdirAll(path, 0o700) != nil {
			return nil
		}
		if err := unix.FsconfigSetString(overlay, layer, path); err != nil {
			return fmt.Errorf("trying an overlay: %w", err)
		}
	}
	if err := unix.FsconfigCreate(overlay); err != nil {
		return fmt.Errorf("trying an overlay in %s: %w", dir, err)
	}
	return nil
}
