package testcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netnsPath matches the network namespaces of containerd's sandboxes.
var netnsPath = regexp.MustCompile(`/(?:var/)?run/netns/cni-[0-9a-f-]+`)

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	return err
}

// removeCgroup removes the cgroups of the node, from the innermost ones.
func (n *node) removeCgroup() error {
	roots, err := hierarchies()
	for _, root := range roots {
		var dirs []string
		werr := filepath.WalkDir(filepath.Join(root, n.cgroup), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		err = errors.Join(err, werr)
		for _, dir := range slices.Backward(dirs) {
			if rerr := unix.Rmdir(dir); rerr != nil && !errors.Is(rerr, unix.ENOENT) {
				err = errors.Join(err, fmt.Errorf("removing %s: %w", dir, rerr))
			}
		}
	}
	return err
}

// Remove removes the files of a stopped cluster.
func (c *Cluster) Remove() error { return os.RemoveAll(c.Dir) }
