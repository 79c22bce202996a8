package images

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

func answer(code int) error {
	return fmt.Errorf("failed to resolve reference %q: %w", "r.example/x:1", remoteerrors.ErrUnexpectedStatus{
		StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code)), RequestURL: "https://m.example/v2/x/manifests/1",
	})
}

func TestPermanent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{answer(http.StatusBadRequest), true},
		{answer(http.StatusUnauthorized), true},
		{answer(http.StatusForbidden), true},
		{answer(http.StatusNotFound), true},
		{answer(http.StatusRequestTimeout), false},
		{answer(http.StatusTooManyRequests), false},
		{answer(http.StatusInternalServerError), false},
		{answer(http.StatusBadGateway), false},
		{answer(http.StatusServiceUnavailable), false},
		{answer(http.StatusGatewayTimeout), false},
		{fmt.Errorf("no match for platform: %w", errdefs.ErrNotFound), true},
		{errors.New("failed commit: unexpected commit digest sha256:1, expected sha256:2"), true},
		{errors.New("children: invalid desc sha256:1: unexpected end of JSON input"), true},
		{errors.New("failed to extract layer sha256:1: unexpected EOF: unknown"), true},
		{errors.New("failed to extract layer sha256:1: link /a/1 /a/2: no such file or directory"), true},
		{errors.New("failed to extract layer sha256:1: write /a/1: input/output error"), false},
		{errors.New("failed to extract layer sha256:1: invalid whiteout name: .wh.: invalid archive: unknown"), true},
		{errors.New("failed to extract layer (application/x sha256:1) to overlayfs as \"extract-1\": unhandled tar header type 86"), true},
		{errors.New("failed to extract layer sha256:1: device number 4294967295:1 for \"x\" out of range: invalid archive"), true},
		{errors.New("failed to extract layer sha256:1: mount callback failed on /t: invalid whiteout name: .wh.: invalid archive"), true},
		{errors.New("failed to extract layer sha256:1: failed to mount /t: device or resource busy: unknown"), false},
		{errors.New("failed to extract layer sha256:1: fork/exec /usr/bin/unpigz: resource temporarily unavailable"), false},
		{errors.New("failed to extract layer sha256:1: mkdir /a/1: no such file or directory"), false},
		{errors.New("failed to extract layer sha256:1: failed to get reader from content store: content digest sha256:1: not found"), false},
		{fmt.Errorf("failed to extract layer sha256:1: %w", context.Canceled), false},
		{fmt.Errorf("failed to extract layer sha256:1: write /a/1: %w", syscall.ENOSPC), true},
		{errors.New("json: cannot unmarshal number into Go struct field Descriptor.config.digest of type digest.Digest"), true},
		{errors.New("number of layers and diffIDs don't match: 1 != 2"), true},
		{fmt.Errorf("%w: media type x is no longer supported since containerd v2.1", errdefs.ErrNotImplemented), true},
		{fmt.Errorf("x: %w", tls.RecordHeaderError{}), true},
		{&busyError{"r.example", "429 Too Many Requests", time.Second}, false},
		{io.ErrUnexpectedEOF, false},
		{syscall.ECONNRESET, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, false},
		{errors.New("connection refused"), false},
	} {
		if got := IsPermanent(tc.err); got != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}

// TestMessages: a message has the registry, the cause and what to do.
func TestMessages(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		err   error
		login login
		want  string
	}{
		{answer(401), unknown, "registry m.example responded with 401 Unauthorized: " + adviceLogin},
		{answer(403), loggedIn, "registry m.example responded with 403 Forbidden: " + adviceLoggedIn},
		{errors.Join(answer(403), docker.Errors{docker.ErrorCodeDenied.WithMessage("blocked")}), notAsked, "registry m.example responded with 403 Forbidden (denied: blocked): " + adviceAccess},
		{fmt.Errorf("x: %w", &url.Error{Op: "Get", URL: "/v2/", Err: errors.New("stopped after 10 redirects")}), notAsked, "registry r.example: stopped after 10 redirects"},
		{answer(500), loggedIn, "registry m.example responded with 500 Internal Server Error"},
		{fmt.Errorf("pull access denied: %w", docker.ErrInvalidAuthorization), unknown, "registry r.example denies access: " + adviceLogin},
		{fmt.Errorf("x: %w", errdefs.ErrNotFound), notAsked, "registry r.example does not have it: " + adviceReference},
		{errors.Join(&engine.PlatformError{Own: "linux/amd64"}, errdefs.ErrNotFound), notAsked, "registry r.example has it, but it is not for linux/amd64"},
		{errors.Join(&engine.PlatformError{Of: []string{"linux/arm64", "linux/s390x"}, Own: "linux/amd64"}, errdefs.ErrNotFound), notAsked, "registry r.example has it, but it is for linux/arm64, linux/s390x, not for linux/amd64"},
		{
			fmt.Errorf("failed to resolve reference %q: rejecting 9000000 byte manifest for x: %w", "r.example/x:1", errdefs.ErrNotFound), notAsked,
			"registry r.example has something other than a container image of that name: rejecting 9000000 byte manifest for x: not found",
		},
		{
			fmt.Errorf("could not fetch content descriptor sha256:1 from remote: %w", errdefs.ErrNotFound), notAsked,
			"registry r.example does not have all of it: could not fetch content descriptor sha256:1 from remote: not found",
		},
		{http.ErrSchemeMismatch, notAsked, "registry r.example does not speak TLS: " + adviceTLS},
		{
			fmt.Errorf("failed to do request: %w", &url.Error{Op: "Head", URL: "https://m.example/v2/", Err: dial}), notAsked,
			"registry m.example: dial tcp: connection refused: " + adviceReach,
		},
		{
			fmt.Errorf("failed to do request: %w", &url.Error{Op: "Get", URL: "https://m.example/v2/", Err: &busyError{"m.example", "429 Too Many Requests", time.Minute}}), notAsked,
			"registry m.example responded with 429 Too Many Requests; retry after 1m0s",
		},
		{errors.New("unexpected commit digest sha256:1"), notAsked, "registry r.example sent a damaged image: unexpected commit digest sha256:1"},
		{errors.New(`failed to resolve reference "r.example/x:1": no route`), notAsked, "no route"},
		{errors.New("disk full"), notAsked, "disk full"},
	} {
		if got := pullMessage("r.example/x:1", tc.err, tc.login); got != tc.want {
			t.Errorf("%q\nwant %q", got, tc.want)
		}
	}
}

// TestPullError: what was put together from two answers and is damaged is fetched again.
func TestPullError(t *testing.T) {
	t.Parallel()
	damaged := errors.New("unexpected commit digest sha256:1, expected sha256:2")
	cut := fmt.Errorf("failed to copy: %w", io.ErrUnexpectedEOF)
	for _, tc := range []struct {
		name    string
		err     error
		traffic *traffic
		final   bool
		message string
	}{
		{"damaged", damaged, &traffic{}, true, "registry r.example sent a damaged image: " + damaged.Error()},
		{"damaged, in two parts", damaged, &traffic{resumed: true}, false, "registry r.example sent a damaged image: " + damaged.Error()},
		{"denied, after two parts", answer(403), &traffic{resumed: true}, true, "registry m.example responded with 403 Forbidden: " + adviceAccess},
		{"cut off", cut, &traffic{host: "m.example", broken: syscall.ECONNRESET}, false, "the connection to registry m.example broke off: connection reset by peer"},
	} {
		err := pullError(t.Context(), Access{ref: "r.example/x:1"}, tc.err, tc.traffic)
		if failure.IsPermanent(err) != tc.final || err.Error() != tc.message || failure.Reason(err, "") != failure.ReasonErrImagePull {
			t.Errorf("%s: permanent %v: %v", tc.name, failure.IsPermanent(err), err)
		}
	}
}
