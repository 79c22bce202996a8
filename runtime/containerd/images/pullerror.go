package images

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// pullError returns the error of a pull: why it has failed, and whether another try may help. One
// that ctx has ended has its cause.
func pullError(ctx context.Context, a Access, err error, t *traffic) error {
	var stalled *stalledError
	if errors.As(context.Cause(ctx), &stalled) {
		return &failure.Error{Why: failure.ReasonErrImagePull, Err: failure.WithMessage(stalled.Error()+": "+adviceReach, stalled)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// What was put together from two answers may be wrong because the registry has changed it
	// meanwhile. The next try starts from the beginning.
	final := IsPermanent(err) && !(t.resumed && isCorrupt(err))
	switch {
	case !errors.Is(err, io.ErrUnexpectedEOF):
	case t.broken != nil:
		err = failure.WithMessage(fmt.Sprintf("the connection to registry %s broke off: %v", t.host, t.broken), err)
	case t.host != "" && !isCorrupt(err):
		err = failure.WithMessage(fmt.Sprintf("registry %s ended its response early: %v", t.host, err), err)
	}
	return &failure.Error{Why: failure.Reason(err, failure.ReasonErrImagePull), Final: final, Err: failure.WithMessage(pullMessage(a.ref, err, t.login)+a.registries.advice(a.ref, err), err)}
}

// PullFailure gives an error of a pull its reason, unless it has one.
func PullFailure(err error) error {
	return &failure.Error{Why: failure.Reason(err, failure.ReasonErrImagePull), Err: err}
}

// IsPermanent reports whether the same pull would fail again: the registry does not have the
// image for this platform, denies access to it, does not speak TLS, or has a corrupt image.
func IsPermanent(err error) bool {
	var status remoteerrors.ErrUnexpectedStatus
	if errors.As(err, &status) {
		return isFinalStatus(status.StatusCode)
	}
	return errdefs.IsNotFound(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) ||
		errdefs.IsInvalidArgument(err) || errors.Is(err, docker.ErrInvalidAuthorization) || isPlain(err) ||
		failure.IsPermanent(err) || isCorrupt(err) || isOther(err)
}

// isPlain reports whether a registry was asked by TLS that does not speak it.
func isPlain(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(tls.RecordHeaderError))
}

func isFinalStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return code >= 400 && code < 500
}

// isCorrupt reports whether an image's content is not what its digests say, or cannot be
// unpacked. Only the text is left of such an error: unpacking has none of its own, and a layer
// may be unpacked by a daemon.
func isCorrupt(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, s := range []string{
		"wrong diff id ",                             // core/unpack
		": invalid desc ", "json: cannot unmarshal ", // core/images
		"unexpected commit digest ", "read exceeds expected size ", // core/content, plugins/content/local
		"read past expected size ", "unhandled content range ", "unable to discard to offset", // core/remotes/docker
		tar.ErrHeader.Error(), gzip.ErrHeader.Error(), gzip.ErrChecksum.Error(), "flate: corrupt input", "invalid input: magic number mismatch",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	_, extraction, ok := strings.Cut(text, "failed to extract layer ")
	// The digest of a layer was right before: what cannot be extracted now never can, unless the cause is not
	// in the layer.
	return ok && !besideLayer.MatchString(extraction) && !errdefs.IsUnavailable(err) && !failure.Passes(err) && !isGone(extraction)
}

// besideLayer matches the errors of an extraction that are about where the layer comes from or goes to
// (core/diff/apply, core/mount).
var besideLayer = regexp.MustCompile(`failed to get reader from content store|failed to activate mounts|failed to (?:un)?mount |: unmount |failed to syncfs|context canceled|context deadline exceeded`)

// isGone reports whether an extraction has failed for a file that somebody has removed meanwhile. A hard link to
// a file that the image does not have is about the layer.
func isGone(extraction string) bool {
	text := strings.TrimSuffix(extraction, failure.Unclassified)
	return strings.HasSuffix(text, ": "+syscall.ENOENT.Error()) && !strings.Contains(text, ": link ")
}

// isOther reports whether the registry has something else than an image of that name, such as a chart,
// or an image that containerd does not take.
func isOther(err error) bool {
	for _, s := range []string{
		"unexpected media type ", "target.MediaType must be set", // core/images, core/metadata
		"which reports content size of zero",                                   // core/remotes
		"number of layers and diffIDs don't match", "unmarshal image config: ", // core/unpack
		"mismatched image rootfs and manifest layers", // client
		"rejecting ", "is no longer supported since ", // core/remotes/docker
	} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}

// What to do about a registry.
const (
	adviceAccess    = "it did not ask for credentials: check its address, the proxy and what it allows this machine"
	adviceLogin     = "it may need credentials, and none are known for it: give the pod a pull secret, or log in with --authfile"
	adviceLoggedIn  = "check the credentials and what they allow"
	adviceReach     = "check its address, the network and the proxy"
	adviceReference = "check the name and the tag"
	adviceTLS       = "if that is intended, give it an address with http:// in its hosts.toml"
)

// pullMessage says in a few words why the pull of an image failed, and what to do.
func pullMessage(ref string, err error, l login) string {
	host, _, _ := strings.Cut(ref, "/")
	text := err.Error()
	var other *engine.PlatformError
	var tooMuch *tooMuchError
	switch {
	case errors.As(err, &tooMuch):
		return tooMuch.Error()
	case errors.As(err, new(remoteerrors.ErrUnexpectedStatus)):
		return statusMessage(host, err, l)
	case errors.As(err, &other):
		return fmt.Sprintf("registry %s has it, but %v", host, other)
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return fmt.Sprintf("registry %s denies access: %s", host, l.advice())
	case isOther(err):
		return fmt.Sprintf("registry %s has something other than a container image of that name: %s", host, afterResolving(text))
	case lacksPart(text):
		return fmt.Sprintf("registry %s does not have all of it: %s", host, text)
	case errdefs.IsNotFound(err):
		return fmt.Sprintf("registry %s does not have it: %s", host, adviceReference)
	case isPlain(err):
		return fmt.Sprintf("registry %s does not speak TLS: %s", host, adviceTLS)
	case isCorrupt(err):
		return fmt.Sprintf("registry %s sent a damaged image: %s", host, text)
	}
	return connectionMessage(host, text, err)
}

// statusMessage has the registry's own words, if there are any.
func statusMessage(host string, err error, l login) string {
	var status remoteerrors.ErrUnexpectedStatus
	var own docker.Errors
	errors.As(err, &status)
	if u, err := url.Parse(status.RequestURL); err == nil && u.Host != "" {
		host = u.Host
	}
	message := fmt.Sprintf("registry %s responded with %s", host, status.Status)
	if errors.As(err, &own) && len(own) > 0 {
		message += fmt.Sprintf(" (%v)", own[0])
	}
	switch status.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return message + ": " + l.advice()
	case http.StatusNotFound:
		return message + ": " + adviceReference
	}
	return message
}

// connectionMessage leaves out what containerd and net/http have put before an error.
func connectionMessage(host, text string, err error) string {
	var request *url.Error
	var dial *net.OpError
	var busy *busyError
	switch {
	case errors.As(err, &busy):
		return busy.Error()
	case errors.As(err, &request):
		if u, err := url.Parse(request.URL); err == nil && u.Host != "" { // it has none after a redirect
			host = u.Host
		}
		message := fmt.Sprintf("registry %s: %v", host, request.Err)
		if errors.As(err, &dial) && !failure.HasAdvice(err) {
			message += ": " + adviceReach
		}
		return message
	}
	return afterResolving(text)
}

// lacksPart reports whether an error, which says that the registry does not have something, is about a
// part of the image (core/remotes/docker).
func lacksPart(text string) bool {
	return strings.Contains(text, "could not fetch content descriptor ") || strings.Contains(text, "content at ")
}

func afterResolving(text string) string {
	if strings.HasPrefix(text, "failed to resolve reference ") {
		if _, rest, ok := strings.Cut(text, `": `); ok {
			return rest
		}
	}
	return text
}
