package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	pinned "github.com/runonce/runonce/runtime/network/namespaces"
)

// conflist is the configuration that nerdctl writes for its default network.
const conflist = `{"cniVersion": "1.0.0", "name": "floor", "plugins": [
	{"type": "bridge", "bridge": "floor0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
	 "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.4.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}},
	{"type": "firewall", "ingressPolicy": "same-bridge"},
	{"type": "tuning"}
]}`

// network connects containers to a bridge. Without a directory it does nothing.
type network struct{ dir, plugins string }

// add makes a network namespace for the container and returns its path.
func (n network) add(ctx context.Context, id string) (string, error) {
	if n.dir == "" {
		return "", nil
	}
	dir := filepath.Join(n.dir, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the directory of the network namespace: %w", err)
	}
	if err := pinned.Make(dir, []pinned.Kind{pinned.Net}, ""); err != nil {
		return "", err
	}
	plugins, list, rt, err := n.call(id)
	if err != nil {
		return "", err
	}
	if _, err := plugins.AddNetworkList(ctx, list, rt); err != nil {
		return "", fmt.Errorf("connecting container %q: %w", id, err)
	}
	return rt.NetNS, nil
}

// prepare connects and disconnects a container that does not exist: plugins that make their
// chains of rules at the same time fail.
func (n network) prepare(ctx context.Context) error {
	_, err := n.add(ctx, "prepare")
	return errors.Join(err, n.remove(ctx, "prepare"))
}

// remove undoes add, if it was called.
func (n network) remove(ctx context.Context, id string) error {
	if n.dir == "" {
		return nil
	}
	dir := filepath.Join(n.dir, id)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	plugins, list, rt, err := n.call(id)
	if err != nil {
		return err
	}
	if err := plugins.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("disconnecting container %q: %w", id, err)
	}
	return pinned.Remove(dir)
}

func (n network) call(id string) (libcni.CNI, *libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, conflist, filepath.Join(n.dir, "leases")))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reading the network's configuration: %w", err)
	}
	plugins := libcni.NewCNIConfigWithCacheDir([]string{n.plugins}, filepath.Join(n.dir, "cache"), nil)
	rt := &libcni.RuntimeConf{ContainerID: id, NetNS: filepath.Join(n.dir, id, string(pinned.Net)), IfName: "eth0"}
	return plugins, list, rt, nil
}
