package images

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// Resolver returns a resolver that uses the hosts files below certsDir and the login. Unless a
// hosts file says otherwise, it does not verify the certificates of registries on this machine,
// and uses plain HTTP for those that do not speak TLS.
func Resolver(ctx context.Context, certsDir string, login Login) remotes.Resolver {
	return docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, config.HostOptions{
		HostDir: config.HostDirFromRoot(certsDir),
		Credentials: func(host string) (string, string, error) {
			return login(ctx, host)
		},
	})})
}

// IsPermanent reports whether the same pull would fail again: the registry does not have the
// image for this platform, denies access to it, does not speak TLS, or has a corrupt image.
func IsPermanent(err error) bool {
	var status remoteerrors.ErrUnexpectedStatus
	if errors.As(err, &status) {
		switch status.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			return true
		}
		return false
	}
	return errdefs.IsNotFound(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) ||
		errdefs.IsInvalidArgument(err) || errors.Is(err, docker.ErrInvalidAuthorization) || errors.Is(err, http.ErrSchemeMismatch) ||
		isCorrupt(err)
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
		"wrong diff id ",                                           // core/unpack
		"unexpected commit digest ", "read exceeds expected size ", // core/content, plugins/content/local
		tar.ErrHeader.Error(), gzip.ErrHeader.Error(), gzip.ErrChecksum.Error(), "flate: corrupt input", "invalid input: magic number mismatch",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return strings.Contains(text, "failed to extract layer ") && strings.HasSuffix(strings.TrimSuffix(text, ": unknown"), io.ErrUnexpectedEOF.Error())
}

// noPlatform is in containerd's error for an image without a manifest for this platform.
const noPlatform = "no match for platform"

// pullMessage says in a few words why a pull failed.
func pullMessage(err error) string {
	var status remoteerrors.ErrUnexpectedStatus
	text := err.Error()
	switch {
	case errors.As(err, &status):
		return "the registry answers " + status.Status
	case strings.Contains(text, noPlatform):
		return "the registry has it, but not for " + platforms.DefaultString()
	case errdefs.IsNotFound(err):
		return "the registry does not have it"
	}
	if strings.HasPrefix(text, "failed to resolve reference ") {
		if _, rest, ok := strings.Cut(text, `": `); ok {
			text = rest
		}
	}
	return strings.TrimPrefix(text, "failed to do request: ")
}
