package manifests

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The kubelet's HTTP source gives a request 10 s (pkg/kubelet/config/http.go). It polls
// for ever; we try a few times.
const (
	requestTimeout = 10 * time.Second
	tries          = 4
	firstPause     = time.Second
)

func isURL(p string) bool {
	return strings.HasPrefix(p, "http://") || strings.HasPrefix(p, "https://")
}

// fetch reads a manifest from an http or https URL. Where another try may help (no
// connection, 5xx, 429) there is one.
func fetch(ctx context.Context, address string, o Options) inputFile {
	u, err := url.Parse(address)
	if err != nil {
		return failed("URL", "is not a URL: "+errors.Unwrap(err).Error(), "")
	}
	name := nameOf(u)
	pause := firstPause
	for try := 1; ; try++ {
		data, err := get(ctx, u, o)
		if err == nil {
			return pinned(name, data, o)
		}
		var p *permanentError
		if errors.As(err, &p) || try == tries {
			return failed(name, err.Error(), "")
		}
		select {
		case <-ctx.Done():
			return failed(name, ctx.Err().Error(), "")
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// nameOf leaves out of the address what may be secret: the password and the query.
func nameOf(u *url.URL) string {
	shown := *u
	if shown.RawQuery != "" {
		shown.RawQuery = "..."
	}
	return shown.Redacted()
}

// permanentError is one that no further try can help.
type permanentError struct{ error }

func get(ctx context.Context, u *url.URL, o Options) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, &permanentError{err}
	}
	client := o.client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("the server responded with %s", resp.Status)
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			return nil, &permanentError{err}
		}
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(o.Limits.Bytes)+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if len(data) > o.Limits.Bytes {
		return nil, &permanentError{errors.New(o.Limits.TooLarge())}
	}
	return data, nil
}

// withoutURL drops the address from an error, since a Diagnostic names it, without password.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// pinned holds what was fetched against the digest that the user wants.
func pinned(name string, data []byte, o Options) inputFile {
	if o.SHA256 == "" {
		return inputFile{name: name, data: data, remote: true}
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); !strings.EqualFold(got, o.SHA256) {
		return failed(name, fmt.Sprintf("has sha256 %s, want %s", got, o.SHA256), "")
	}
	return inputFile{name: name, data: data, remote: true}
}
