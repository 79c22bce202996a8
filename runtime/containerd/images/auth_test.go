package images

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/engine"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, config, host, user, secret, err string
	}{
		{name: "none", config: `{}`, host: "example.com"},
		{name: "plain", config: `{"auths": {"example.com": {"username": "u", "password": "p"}}}`, host: "example.com", user: "u", secret: "p"},
		{name: "base64", config: `{"auths": {"example.com:5000": {"auth": "dTpwOnc="}}}`, host: "example.com:5000", user: "u", secret: "p:w"},
		{name: "another port", config: `{"auths": {"example.com:5000": {"auth": "dTpw"}}}`, host: "example.com"},
		{name: "address", config: `{"auths": {"https://example.com/v2/": {"auth": "dTpw"}}}`, host: "example.com", user: "u", secret: "p"},
		{name: "hub", config: `{"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}}}`, host: "registry-1.docker.io", user: "u", secret: "p"},
		{name: "token", config: `{"auths": {"example.com": {"identitytoken": "t", "auth": "dTpw"}}}`, host: "example.com", secret: "t"},
		{name: "not base64", config: `{"auths": {"example.com": {"auth": "!"}}}`, host: "example.com", err: "decoding"},
		{name: "no colon", config: `{"auths": {"example.com": {"auth": "dQ=="}}}`, host: "example.com", err: "colon"},
		{name: "no such helper", config: `{"credHelpers": {"example.com": "none-such"}}`, host: "example.com", err: `helper "none-such"`},
		{name: "helper of another", config: `{"credHelpers": {"example.com": "none-such"}}`, host: "example.org"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := readLogins(path)
			if err != nil {
				t.Fatal(err)
			}
			user, secret, err := c.Credentials(t.Context(), tc.host)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || user != tc.user || secret != tc.secret {
				t.Errorf("%q %q, %v", user, secret, err)
			}
		})
	}
}

// TestLogins: the credentials given come first, then the configuration, if it has the registry.
func TestLogins(t *testing.T) {
	t.Parallel()
	config := Config{Auths: map[string]Auth{"known.example": {Username: "node", Password: "p"}}}
	given := []engine.Credential{{User: "a", Password: "1"}, {User: "b", Password: "2"}}
	for _, tc := range []struct {
		ref   string
		given []engine.Credential
		want  []string
	}{
		{"known.example/x:1", nil, []string{"node p"}},
		{"other.example/x:1", nil, []string{" "}},
		{"known.example/x:1", given, []string{"a 1", "b 2", "node p"}},
		{"other.example/x:1", given, []string{"a 1", "b 2"}},
	} {
		var got []string
		for _, login := range config.Logins(t.Context(), tc.ref, tc.given) {
			host, _, _ := strings.Cut(tc.ref, "/")
			user, secret, err := login(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, user+" "+secret)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.ref, got, tc.want)
		}
	}
}

func TestCredentialHelpers(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"good":  `read host; echo "{\"Username\": \"me\", \"Secret\": \"for $host\"}"`,
		"token": `echo '{"Username": "<token>", "Secret": "t"}'`,
		"empty": `echo "credentials not found in native keychain"; exit 1`,
		"bad":   `echo "the chain is locked"; exit 1`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, tc := range []struct {
		name               string
		config             Config
		user, secret, fail string
	}{
		{name: "for the host", config: Config{CredHelpers: map[string]string{"example.com": "good"}}, user: "me", secret: "for example.com"},
		{name: "for all", config: Config{CredsStore: "good"}, user: "me", secret: "for example.com"},
		{name: "token", config: Config{CredsStore: "token"}, secret: "t"},
		{name: "nothing there", config: Config{CredsStore: "empty"}},
		{name: "broken", config: Config{CredsStore: "bad"}, fail: "the chain is locked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user, secret, err := tc.config.Credentials(t.Context(), "example.com")
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || user != tc.user || secret != tc.secret {
				t.Errorf("%q %q, %v", user, secret, err)
			}
		})
	}
}

func TestLoadConfig(t *testing.T) {
	own, home := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".docker"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, user string) {
		t.Helper()
		text := fmt.Sprintf(`{"auths": {"example.com": {"username": %q, "password": "p"}}}`, user)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".docker", "config.json"), "home")
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", own)
	for _, want := range []string{"home", "own"} {
		if want == "own" {
			write(filepath.Join(own, "config.json"), "own")
		}
		c, err := LoadConfig()
		if err != nil || c.Auths["example.com"].Username != want {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

func TestPermanent(t *testing.T) {
	t.Parallel()
	status := func(code int) error {
		return fmt.Errorf("pulling: %w", remoteerrors.ErrUnexpectedStatus{StatusCode: code})
	}
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{status(http.StatusUnauthorized), true},
		{status(http.StatusForbidden), true},
		{status(http.StatusNotFound), true},
		{status(http.StatusTooManyRequests), false},
		{status(http.StatusBadGateway), false},
		{fmt.Errorf("no match for platform: %w", errdefs.ErrNotFound), true},
		{errors.New("connection refused"), false},
	} {
		if got := IsPermanent(tc.err); got != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("failed to resolve reference %q: %w", "r:1/x:1", remoteerrors.ErrUnexpectedStatus{StatusCode: 401, Status: "401 Unauthorized"}),
			"the registry answers 401 Unauthorized",
		},
		{fmt.Errorf("failed to resolve reference %q: %w", "r:1/x:1", errdefs.ErrNotFound), "the registry does not have it"},
		{
			errors.New(`failed to resolve reference "r:1/x:1": failed to do request: Head "http://r:1/v2/": dial tcp: connection refused`),
			`Head "http://r:1/v2/": dial tcp: connection refused`,
		},
		{errors.New("disk full"), "disk full"},
	} {
		if got := pullMessage(tc.err); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
