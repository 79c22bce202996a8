package manifests

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/runonce/runonce/manifests/decode"
)

// The kubelet's HTTP source gives a request 10 s (pkg/kubelet/config/http.go). It polls for
// ever; this package tries a few times.
const (
	requestTimeout = 10 * time.Second
	tries          = 4
	firstPause     = time.Second
)

// metadataServer is the name of that of Compute Engine, which answers requests with its header only.
const metadataServer = "metadata.google.internal"

func isURL(p string) bool {
	return strings.HasPrefix(p, "http://") || strings.HasPrefix(p, "https://")
}

// fetch reads a manifest from an http or https URL. It retries errors that may be transient (no
// connection, 5xx, 429).
func fetch(ctx context.Context, address string, o Options) inputFile {
	u, err := url.Parse(address)
	if err != nil {
		return failed(Shown(address), "is not a URL", "write what is no letter, digit or -._~ in a password as %XX")
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

// permanentError is an error that a retry cannot fix.
type permanentError struct{ error }

func get(ctx context.Context, u *url.URL, o Options) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, &permanentError{err}
	}
	header := http.Header{}
	if u.Hostname() == metadataServer {
		header.Set("Metadata-Flavor", "Google")
	}
	maps.Copy(header, o.Header)
	req.Header = header.Clone()
	client := *cmp.Or(o.client, http.DefaultClient)
	client.CheckRedirect = redirected(header)
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
	data, err := io.ReadAll(io.LimitReader(resp.Body, decode.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if len(data) > decode.MaxBytes {
		return nil, &permanentError{errors.New(decode.TooLarge)}
	}
	return data, nil
}

// withoutURL returns the error without the address, which a Diagnostic has without its
// password.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// pinned compares what was fetched with the digest that the user wants.
func pinned(name string, data []byte, o Options) inputFile {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); o.SHA256 != "" && !strings.EqualFold(got, o.SHA256) {
		return failed(name, fmt.Sprintf("has sha256 %s, want %s", got, o.SHA256), "")
	}
	return inputFile{name: name, data: data, size: int64(len(data)), remote: true}
}
