package network

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
)

// podInterface is the name of a pod's first interface, as in Kubernetes.
const podInterface = "eth0"

// pluginExec runs CNI plugins. Their PATH has the sbin directories, for iptables.
type pluginExec struct {
	version.PluginDecoder
	inherit []*os.File
	limit   time.Duration
}

// ExecPlugin implements invoke.Exec.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.limit, fmt.Errorf("it did not finish within %s", e.limit))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(environ, "PATH="+systemPath(os.Getenv("PATH"))) // the last of several entries counts
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.ExtraFiles = e.inherit
	// It is killed with the plugins and programs that it has started: they have inherited its
	// output and the locks.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Start()
	if err == nil {
		awaitThreads(cmd.Process.Pid)
		err = cmd.Wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // libcni names the plugin
		}
		return nil, pluginError(err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// awaitThreads waits until the process has exited, without reaping it, and then for its threads
// to be gone. Plugins have several threads, and the last one is still removing its entries in
// /proc when the exit is reported: whoever reaps the process at once spins in the kernel until
// that is done, which took 4 ms of CPU time per pod.
func awaitThreads(pid int) {
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	time.Sleep(time.Millisecond)
}

// pluginError returns the plugin's own error, which it prints as JSON, else whatever it
// printed.
func pluginError(err error, stdout, stderr []byte) error {
	reported := &types.Error{}
	if json.Unmarshal(stdout, reported) == nil && (reported.Msg != "" || reported.Code != 0) {
		return reported
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
		return "", failure.Permanentf("looking for CNI plugin %q: %w: install the package %s", plugin, err, pluginsPackage)
	}
	return path, nil
}

// podNetwork is a network that a pod joins.
type podNetwork struct {
	Name   string `json:"name"`
	Config []byte `json:"config"` // its conflist
	// Dir is the directory with its configuration, empty for our own network.
	Dir       string `json:"dir,omitempty"`
	Interface string `json:"interface"`
	// Alias is its name in the pod's annotation and network status.
	Alias string       `json:"alias,omitempty"`
	Asked capabilities `json:"asked"` // what the pod asks of it
}

// add connects the pod. After an error the caller undoes with del what was done.
func (m *Manager) add(ctx context.Context, a *attachment, n podNetwork, lock *os.File) (networkStatus, error) {
	var raw types.Result
	err := m.runPlugins(ctx, a, n, lock, func(ctx context.Context, c libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (err error) {
		raw, err = c.AddNetworkList(ctx, list, rt)
		return err
	})
	if err != nil {
		return networkStatus{}, err
	}
	result, err := types100.NewResultFromResult(raw)
	if err != nil {
		return networkStatus{}, fmt.Errorf("reading the result of network %q: %w", n.Name, err)
	}
	s := networkStatus{
		Name: cmp.Or(n.Alias, n.Name), Interface: n.Interface, IPs: podIPs(result), MAC: podMAC(result, n.Interface),
		Default: n.Interface == podInterface,
	}
	if !result.DNS.IsEmpty() {
		s.DNS = &result.DNS
	}
	return s, nil
}

// del disconnects the pod. It may be repeated.
func (m *Manager) del(ctx context.Context, a *attachment, n podNetwork, lock *os.File) error {
	added, err := m.delAs(ctx, a, n, lock)
	if err == nil || n.Dir == "" {
		return err
	}
	// A plugin refuses a mistake in its configuration here as well, until somebody corrects it.
	list, confErr := namedNetwork(n.Dir, n.Name)
	switch {
	case errors.Is(confErr, fs.ErrNotExist) && !added:
		m.o.Log.Warn("could not remove a network from a pod that was never connected to it; the network is no longer configured",
			"pod", a.Namespace+"/"+a.Name, "network", n.Name, "error", err)
		return nil
	case confErr != nil || bytes.Equal(list.Bytes, n.Config):
		return err
	}
	n.Config = list.Bytes
	_, err = m.delAs(ctx, a, n, lock)
	return err
}

// delAs disconnects the pod by the network's configuration, and reports whether the pod had been
// connected completely.
func (m *Manager) delAs(ctx context.Context, a *attachment, n podNetwork, lock *os.File) (added bool, err error) {
	err = m.runPlugins(ctx, a, n, lock, func(ctx context.Context, c libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		result, err := c.GetNetworkListCachedResult(list, rt)
		added = result != nil || err != nil
		return c.DelNetworkList(ctx, list, rt)
	})
	return added, err
}

// cniCall is a call of libcni for a pod and a network.
type cniCall func(context.Context, libcni.CNI, *libcni.NetworkConfigList, *libcni.RuntimeConf) error

// runPlugins calls libcni with the network and the pod, by the conventions of Kubernetes' container
// runtimes. The plugins inherit the lock: if this process is killed, the next one waits for them.
func (m *Manager) runPlugins(ctx context.Context, a *attachment, n podNetwork, lock *os.File, call cniCall) error {
	list, err := libcni.ConfListFromBytes(n.Config)
	if err != nil {
		return failure.Permanentf("reading the configuration of network %q: %w", n.Name, err)
	}
	c := libcni.NewCNIConfigWithCacheDir(m.o.CNIBinDirs, m.files.results(), &pluginExec{inherit: []*os.File{lock}, limit: m.limitOf(n)})
	return classify(call(ctx, c, list, &libcni.RuntimeConf{
		ContainerID: a.UID,
		NetNS:       a.NetNS,
		IfName:      n.Interface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", a.Namespace},
			{"K8S_POD_NAME", a.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", a.UID},
			{"K8S_POD_UID", a.UID},
		},
		CapabilityArgs: n.Asked.arguments(),
	}))
}

// limitOf bounds the time of the network's plugins: portmap runs several programs for each port.
func (m *Manager) limitOf(n podNetwork) time.Duration {
	return m.pluginLimit + time.Duration(len(n.Asked.Ports))*portLimit
}

// podMAC returns the hardware address of the pod's interface, "" when the plugins do not
// report it.
func podMAC(result *types100.Result, name string) string {
	for _, i := range result.Interfaces {
		if i.Name == name && i.Sandbox != "" {
			return i.Mac
		}
	}
	return ""
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

// classify marks the plugins' errors that no retry can fix: those that the CNI specification
// reserves for an invalid configuration or environment, and those of the system, such as a full disk.
func classify(err error) error {
	var e *types.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField, types.ErrInvalidEnvironmentVariables,
		types.ErrDecodingFailure, types.ErrInvalidNetworkConfig:
		return &failure.Error{Final: true, Err: err}
	default:
		return failure.WithErrno(err)
	}
}
