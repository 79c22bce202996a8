package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/runonce/runonce/runtime/network/fault"
	"github.com/runonce/runonce/runtime/network/hostnet"
)

// podInterface is the name of a pod's interface, as in Kubernetes.
const podInterface = "eth0"

// pluginExec runs CNI plugins with a PATH that holds iptables also where ours lacks the
// sbin directories, as at boot or from cron.
type pluginExec struct {
	version.PluginDecoder
	lock podLock // which the plugins inherit
}

// ExecPlugin implements invoke.Exec.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = hostnet.SystemEnv(environ), bytes.NewReader(stdin), &stdout, &stderr
	cmd.ExtraFiles = []*os.File{e.lock.dir}
	// A plugin that was killed may leave a child behind that holds its output.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("running CNI plugin %s: %w", path, context.Cause(ctx))
		}
		return nil, pluginError(err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// pluginError returns what the plugin says of its failure: its answer in JSON, else what
// it wrote to stderr.
func pluginError(err error, stdout, stderr []byte) error {
	said := &types.Error{}
	if json.Unmarshal(stdout, said) == nil && (said.Msg != "" || said.Code != 0) {
		return said
	}
	if text := bytes.TrimSpace(append(stdout, stderr...)); len(text) > 0 {
		return fmt.Errorf("%w: %.1000s", err, text)
	}
	return err
}

// FindInPath implements invoke.Exec.
func (e *pluginExec) FindInPath(plugin string, dirs []string) (string, error) {
	path, err := invoke.FindInPath(plugin, dirs)
	if err != nil {
		return "", fault.Permanentf("looking for CNI plugin %q: %w: install the package %s", plugin, err, pluginsPackage)
	}
	return path, nil
}

// plugins runs CNI's plugins for attachments.
type plugins struct {
	dirs  []string
	cache string // directory of libcni's results
	lock  podLock
}

func (p plugins) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(p.dirs, p.cache, &pluginExec{lock: p.lock})
}

// add connects the pod and returns its addresses, the primary one first. After an error
// the caller undoes with del what was done.
func (p plugins) add(ctx context.Context, a *attachment) ([]string, error) {
	list, rt, err := a.arguments(a.NetNS)
	if err != nil {
		return nil, err
	}
	raw, err := p.cni().AddNetworkList(ctx, list, rt)
	if err != nil {
		return nil, classify(err)
	}
	result, err := types100.NewResultFromResult(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of network %q: %w", list.Name, err)
	}
	ips := podIPs(result)
	if len(ips) == 0 {
		return nil, fmt.Errorf("network %q gave the pod no address", list.Name)
	}
	return ips, nil
}

// del disconnects the pod. It may be repeated. netns is empty when the pod's namespace is
// gone; then the plugins release what they hold outside of it.
func (p plugins) del(ctx context.Context, a *attachment, netns string) error {
	list, rt, err := a.arguments(netns)
	if err != nil {
		return err
	}
	if err := p.cni().DelNetworkList(ctx, list, rt); err != nil {
		return classify(err)
	}
	return nil
}

// arguments returns the network and what CNI is to know of the pod, in the conventions of
// the container runtimes of Kubernetes.
func (a *attachment) arguments(netns string) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	list, err := libcni.ConfListFromBytes(a.Config)
	if err != nil {
		return nil, nil, fault.Permanentf("reading the configuration of network %q: %w", a.Network, err)
	}
	rt := &libcni.RuntimeConf{
		ContainerID: a.UID,
		NetNS:       netns,
		IfName:      podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", a.Namespace},
			{"K8S_POD_NAME", a.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", a.UID},
			{"K8S_POD_UID", a.UID},
		},
		CapabilityArgs: a.Asked.arguments(),
	}
	return list, rt, nil
}

// podIPs returns the addresses in the result that are the pod's own.
func podIPs(result *types100.Result) []string {
	ips := make([]string, 0, len(result.IPs))
	for _, c := range result.IPs {
		if i := c.Interface; i != nil && *i >= 0 && *i < len(result.Interfaces) && result.Interfaces[*i].Sandbox == "" {
			continue
		}
		ips = append(ips, c.Address.IP.String())
	}
	return ips
}

// classify marks the plugin's errors that no retry mends: those that the CNI
// specification reserves for a configuration or an environment that does not fit.
func classify(err error) error {
	var e *types.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField, types.ErrInvalidEnvironmentVariables,
		types.ErrDecodingFailure, types.ErrInvalidNetworkConfig:
		return fault.Permanent(err)
	default:
		return err
	}
}
