package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/runonce/runonce/internal/failure"
)

// pluginsPackage is the name of the CNI plugins' package in most distributions.
const pluginsPackage = "containernetworking-plugins"

// packagedPlugins are those of that package.
var packagedPlugins = []string{
	"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan",
	"portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf",
}

// defaultNetwork returns the machine's own network configuration: the first file of dir by name,
// as Kubernetes' container runtimes choose it. Without one the error wraps fs.ErrNotExist.
func defaultNetwork(dir string) (*libcni.NetworkConfigList, error) {
	files, err := confFiles(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("looking for network configurations in %s: %w", dir, fs.ErrNotExist)
	}
	return readConf(files[0])
}

// namedNetwork returns the network of that name that a file of dir configures. Without one the
// error wraps fs.ErrNotExist.
func namedNetwork(dir, name string) (*libcni.NetworkConfigList, error) {
	files, err := confFiles(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range files {
		list, err := readConf(path)
		if err != nil {
			errs = append(errs, err) // it may be the one that is meant
			continue
		}
		if list.Name == name {
			return list, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("no file in %s configures network %q: %w", dir, name, fs.ErrNotExist), errors.Join(errs...))
}

// confFiles returns the network configurations of a directory by name.
func confFiles(dir string) ([]string, error) {
	files, err := libcni.ConfFiles(dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, fmt.Errorf("looking for network configurations in %s: %w", dir, err)
	}
	slices.Sort(files)
	return files, nil
}

func readConf(path string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading network configuration: %w", err)
	}
	if !strings.HasSuffix(path, ".conflist") {
		if data, err = listOf(data); err != nil {
			return nil, failure.Permanentf("reading network configuration %s: %w", path, err)
		}
	}
	list, err := libcni.ConfListFromBytes(data)
	if err == nil && len(list.Plugins) == 0 {
		err = errors.New("it has no plugins")
	}
	if err != nil {
		return nil, failure.Permanentf("reading network configuration %s: %w", path, err)
	}
	return list, nil
}

// listOf turns the configuration of a single plugin, the format before conflists, into a
// list of one.
func listOf(conf []byte) ([]byte, error) {
	var list struct {
		Name       string            `json:"name,omitempty"`
		CNIVersion string            `json:"cniVersion,omitempty"`
		Plugins    []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(conf, &list); err != nil {
		return nil, err
	}
	list.Plugins = []json.RawMessage{conf}
	return json.Marshal(list)
}

// checkCapabilities returns a permanent error when no plugin of the list has one of the
// capabilities.
func checkCapabilities(list *libcni.NetworkConfigList, asked capabilities, dir string) error {
	for _, name := range asked.Names() {
		has := slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[name] })
		if !has {
			return failure.Permanentf("no plugin of network %q in %s has the capability %s, which the pod's %s needs",
				list.Name, dir, name, asksFor(name))
		}
	}
	return nil
}

// pluginsOf returns the plugins that the list needs.
func pluginsOf(list *libcni.NetworkConfigList) []string {
	kinds := make([]string, 0, 2*len(list.Plugins))
	for _, p := range list.Plugins {
		kinds = append(kinds, p.Network.Type)
		if ipam := p.Network.IPAM.Type; ipam != "" {
			kinds = append(kinds, ipam)
		}
	}
	return kinds
}

// checkPlugins returns a permanent error that says what to install when some of the plugins
// are not in any of the directories.
func checkPlugins(plugins, dirs []string) error {
	missing := make([]string, 0, len(plugins))
	for _, p := range plugins {
		if _, err := invoke.FindInPath(p, dirs); err != nil && !slices.Contains(missing, p) {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	advice := "install the plugins of this network there"
	if slices.ContainsFunc(missing, func(p string) bool { return slices.Contains(packagedPlugins, p) }) {
		advice = "install the package " + pluginsPackage
	}
	return failure.Permanentf("no CNI plugin %s in %s: %s, or give the pod spec.hostNetwork",
		strings.Join(missing, ", "), strings.Join(dirs, ", "), advice)
}
