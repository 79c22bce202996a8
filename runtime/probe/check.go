// Package probe asks containers whether they have started, are ready and are alive, by
// the kubelet's rules (pkg/kubelet/prober, pkg/probe), from inside the pod's network
// namespace.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// maxOutput bounds what is kept of an answer, in bytes.
	maxOutput = 10 << 10
	// maxTries is how often a probe is tried that cannot be carried out.
	maxTries = 3
	// userAgent and hookAgent are how probes and lifecycle hooks introduce themselves.
	userAgent = "kube-probe/1.37"
	hookAgent = "kube-lifecycle/1.37"
)

// Result is what a probe found.
type Result string

// The results of a probe. Unknown: it could not be carried out, and says nothing.
const (
	Success Result = "Success"
	Failure Result = "Failure"
	Unknown Result = "Unknown"
)

// Answer is the outcome of one probe.
type Answer struct {
	Result Result
	Output string // what the container said, or why it failed
}

// ExecFunc runs a command inside a container and returns its exit code and its output. An
// error says that it could not be run, or was not done when ctx was.
type ExecFunc func(ctx context.Context, command []string) (exitCode int32, output []byte, err error)

// Target is a container that is probed.
type Target struct {
	Container *v1.Container // for its named ports and its environment
	NetNS     string        // path of the pod's network namespace, empty for the host's
	IP        string        // the pod's
	Exec      ExecFunc
}

// Check carries out the probe, within its timeout, and again when it could not be carried
// out, up to three times.
func Check(ctx context.Context, t Target, p *v1.Probe) Answer {
	var err error
	for range maxTries {
		var a Answer
		a, err = t.once(ctx, p)
		if ctx.Err() != nil {
			// Not the container failed, but the asking was given up.
			return Answer{Unknown, context.Cause(ctx).Error()}
		}
		if err == nil {
			return a
		}
	}
	return Answer{Unknown, err.Error()}
}

// once carries out the probe. An error says that this was not possible.
func (t Target) once(ctx context.Context, p *v1.Probe) (Answer, error) {
	timeout := Timeout(p)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case p.Exec != nil:
		return t.exec(ctx, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		return t.httpGet(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		return t.tcpSocket(ctx, p.TCPSocket)
	case p.GRPC != nil:
		return t.grpc(ctx, p.GRPC, timeout)
	}
	return Answer{}, errors.New("the probe has no handler")
}

// Timeout returns how long the probe may take, 1 s unless it says otherwise.
func Timeout(p *v1.Probe) time.Duration {
	return time.Duration(max(1, p.TimeoutSeconds)) * time.Second
}

func (t Target) exec(ctx context.Context, command []string, timeout time.Duration) (Answer, error) {
	command = expandStatic(command, t.Container.Env)
	code, output, err := t.Exec(ctx, command)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Answer{Failure, fmt.Sprintf("command %q timed out after %s", command, timeout)}, nil
	case err != nil:
		return Answer{}, err
	case code != 0:
		return Answer{Failure, cut(output)}, nil
	}
	return Answer{Success, cut(output)}, nil
}

func cut(output []byte) string {
	return string(output[:min(len(output), maxOutput)])
}

func (t Target) tcpSocket(ctx context.Context, a *v1.TCPSocketAction) (Answer, error) {
	addr, err := t.address(a.Host, a.Port)
	if err != nil {
		return Answer{}, err
	}
	conn, err := t.dial(ctx, "tcp", addr)
	if err != nil {
		return failed(err), nil
	}
	_ = conn.Close() // it was only to be opened
	return Answer{Result: Success}, nil
}

// failed is the answer of a container that cannot be reached: that is its own fault.
func failed(err error) Answer { return Answer{Failure, err.Error()} }

// address returns host:port, the host the pod's IP by default, the port by number or by
// the name that a container port has.
func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.IP
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range t.Container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 || number > 65535 {
		return "", fmt.Errorf("container %q has no port %q", t.Container.Name, port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
