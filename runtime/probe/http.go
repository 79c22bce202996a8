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
// redirects are followed on the same host only, and those to another one are a success. A response
// that does not end in time, such as a stream of events, is neither a success nor a failure.
func (t Target) httpGet(ctx context.Context, a *v1.HTTPGetAction) (Outcome, error) {
	req, err := t.request(ctx, a, userAgent)
	if err != nil {
		return Outcome{}, err
	}
	resp, err := t.client(a).Do(req)
	if err != nil {
		return failed(err), nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return Outcome{}, fmt.Errorf("reading the response: %w", err)
	}
	switch code := resp.StatusCode; {
	case code >= http.StatusOK && code < http.StatusMultipleChoices:
		return Outcome{Success, string(body)}, nil
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return Outcome{Success, "Probe terminated redirects, Response body: " + string(body)}, nil
	default:
		return Outcome{Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code)}, nil
	}
}

// Hook runs an HTTP lifecycle hook (pkg/kubelet/lifecycle/handlers.go): any status is a
// success, and an HTTPS request to an HTTP server is repeated over HTTP, without credentials.
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

// send sends the request and discards the response.
func send(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	// Any response is a success, also an incomplete one.
	_, _ = io.CopyN(io.Discard, resp.Body, maxOutput)
	return nil
}

// client returns an HTTP client inside the pod's network namespace, like that of pkg/probe/http:
// for HTTPS with the newest version that both support, for HTTP with that of the action. It does
// not verify certificates, which rarely name the pod's address.
func (t Target) client(a *v1.HTTPGetAction) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:  true,
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // DialContext turns it off
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
		// The path need not be valid in a URL.
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
		req.Header.Del("Accept") // an empty one means none
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
