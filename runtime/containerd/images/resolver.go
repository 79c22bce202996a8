package images

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// Resolver returns a resolver that uses the hosts files below certsDir and the login. It uses
// plain HTTP for registries on this machine, unless a hosts file says otherwise.
func Resolver(ctx context.Context, certsDir string, login Login) remotes.Resolver {
	hosts := config.HostOptions{
		HostDir: config.HostDirFromRoot(certsDir),
		Credentials: func(host string) (string, string, error) {
			return login(ctx, host)
		},
	}
	local := hosts
	local.DefaultScheme = "http"
	withTLS, plain := config.ConfigureHosts(ctx, hosts), config.ConfigureHosts(ctx, local)
	return docker.NewResolver(docker.ResolverOptions{
		Hosts: func(host string) ([]docker.RegistryHost, error) {
			if loopback(host) {
				return plain(host)
			}
			return withTLS(host)
		},
	})
}

func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// IsPermanent reports whether the same pull would fail again: the registry does not have the
// image for this platform, or denies access to it.
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
		errdefs.IsInvalidArgument(err) || errors.Is(err, docker.ErrInvalidAuthorization)
}

// pullMessage says in a few words why a pull failed.
func pullMessage(err error) string {
	var status remoteerrors.ErrUnexpectedStatus
	text := err.Error()
	switch {
	case errors.As(err, &status):
		return "the registry answers " + status.Status
	case strings.Contains(text, "no match for platform"):
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
