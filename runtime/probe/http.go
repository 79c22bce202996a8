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
	req, err := t.request(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	client := &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives:  true,
			DisableCompression: true,
			Proxy:              nil,
			DialContext:        t.dial,
		},
	}
	resp, err := client.Do(req)
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

func (t Target) request(ctx context.Context, a *v1.HTTPGetAction) (*http.Request, error) {
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
		req.Header.Set("User-Agent", userAgent)
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
