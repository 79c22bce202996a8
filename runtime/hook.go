package runtime

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/runtime/network"
)

// hookAgent is how HTTP hooks introduce themselves (pkg/kubelet/lifecycle/handlers.go).
const hookAgent = "kube-lifecycle/1.37"

func preStop(pod *v1.Pod, name string) *v1.LifecycleHandler {
	for _, c := range containersOf(pod) {
		if c.Name == name && c.Lifecycle != nil {
			return c.Lifecycle.PreStop
		}
	}
	return nil
}

// hookCall is one call of a lifecycle hook.
type hookCall struct {
	pod   *v1.Pod
	c     Container
	hook  *v1.LifecycleHandler
	limit time.Duration // 0 for none
}

// runHook follows pkg/kubelet/lifecycle/handlers.go: any HTTP status is a success, and a
// tcpSocket hook is not run.
func (p *Pods) runHook(ctx context.Context, h hookCall) error {
	if h.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.limit)
		defer cancel()
	}
	switch {
	case h.hook.Exec != nil:
		res, err := p.o.Engine.Exec(ctx, h.c.ID, h.hook.Exec.Command)
		if err == nil && res.ExitCode != 0 {
			return fmt.Errorf("command %q exited with %d: %s", h.hook.Exec.Command, res.ExitCode, res.Output)
		}
		return err
	case h.hook.HTTPGet != nil:
		box, err := p.o.Sandboxes.Get(ctx, h.pod)
		if err != nil {
			return err
		}
		return httpHook(ctx, h, box)
	case h.hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.hook.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	return errors.New("the hook has no handler that can be run")
}

func httpHook(ctx context.Context, h hookCall, box network.Sandbox) error {
	get := h.hook.HTTPGet
	host := get.Host
	if host == "" && len(box.IPs) > 0 {
		host = box.IPs[0]
	}
	port, err := namedPort(h.pod, h.c.Name, get.Port)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s://%s%s", schemeOf(get), net.JoinHostPort(host, port), get.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("making request %s: %w", url, err)
	}
	req.Header.Set("User-Agent", hookAgent)
	for _, header := range get.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	resp, err := hookClient().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.CopyN(io.Discard, resp.Body, MaxExecOutput)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	return nil
}

// namedPort resolves a port name with the container's ports.
func namedPort(pod *v1.Pod, container string, port intstr.IntOrString) (string, error) {
	if port.Type == intstr.Int {
		return port.String(), nil
	}
	for _, c := range containersOf(pod) {
		for _, p := range c.Ports {
			if c.Name == container && p.Name == port.StrVal {
				return fmt.Sprint(p.ContainerPort), nil
			}
		}
	}
	return "", fmt.Errorf("container %q has no port named %q", container, port.StrVal)
}

// schemeOf is http unless the hook asks for HTTPS.
func schemeOf(get *v1.HTTPGetAction) string {
	if get.Scheme == "" {
		return "http"
	}
	return strings.ToLower(string(get.Scheme))
}

// hookClient does not verify certificates, as the kubelet's does not: a container's own
// certificate rarely names the pod's address.
func hookClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		Proxy:             nil,
	}}
}
