package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxRedirects is how many redirects a probe follows.
const maxRedirects = 10

// httpGet follows pkg/probe/http: 200 to 399 is a success; certificates are not verified;
// redirects are followed on the same host only, another one counts as answered.
func (t Target) httpGet(ctx context.Context, a *v1.HTTPGetAction) (Answer, error) {
	req, err := t.request(ctx, a, userAgent)
	if err != nil {
		return Answer{}, err
	}
	resp, err := t.client(a).Do(req)
	if err != nil {
		return failed(err), nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		if ctx.Err() != nil {
			return Answer{Failure, fmt.Sprintf("reading the answer: %v", err)}, nil
		}
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	switch code := resp.StatusCode; {
	case code >= http.StatusOK && code < http.StatusMultipleChoices:
		return Answer{Success, string(body)}, nil
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return Answer{Success, "Probe terminated redirects, Response body: " + string(body)}, nil
	default:
		return Answer{Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code)}, nil
	}
}

// Hook carries out an HTTP lifecycle hook (pkg/kubelet/lifecycle/handlers.go): any status
// is a success, and one over HTTPS that a server of HTTP answers is repeated over HTTP,
// without credentials.
func (t Target) Hook(ctx context.Context, a *v1.HTTPGetAction) error {
	req, err := t.request(ctx, a, hookAgent)
	if err != nil {
		return err
	}
	client := t.client(a)
	err = send(client, req)
	if err == nil || req.URL.Scheme != "https" || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	return send(client, plain)
}

// send sends the request and lets its answer go.
func send(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	// The status was what mattered: an answer cut short is no fault of the hook's.
	_, _ = io.CopyN(io.Discard, resp.Body, maxOutput)
	return nil
}

// client speaks HTTP from inside the pod's network namespace as pkg/probe/http does: over
// HTTPS the newest version that both know, over HTTP that of the action. It does not verify
// certificates, since a container's own rarely names the pod's address.
func (t Target) client(a *v1.HTTPGetAction) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:  true,
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // DialContext would turn it off
		Proxy:              nil,
		DialContext:        t.dial,
	}
	if a.Protocol != nil && *a.Protocol == v1.HTTPProtocolHTTP2 {
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Client{CheckRedirect: checkRedirect, Transport: transport}
}

func (t Target) request(ctx context.Context, a *v1.HTTPGetAction, agent string) (*http.Request, error) {
	addr, err := t.address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		// The path of a manifest need not be a URL's.
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = "http", addr
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("making request %s: %w", u, err)
	}
	for _, h := range a.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", agent)
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept") // an empty one takes it away
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
