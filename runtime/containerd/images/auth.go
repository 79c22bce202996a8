package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/runonce/runonce/runtime/engine"
)

const (
	// dockerHub is what docker's configuration calls the registry of docker.io.
	dockerHub = "https://index.docker.io/v1/"
	// hubHost is the host that serves it.
	hubHost = "registry-1.docker.io"
	// tokenUser is the user name that stands for an identity token.
	tokenUser = "<token>"

	helperTimeout = 10 * time.Second
)

// Config is the part of docker's config.json that holds credentials.
type Config struct {
	Auths       map[string]Auth   `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

// Auth is one registry's entry.
type Auth struct {
	Auth          string `json:"auth"` // base64 of user:password
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

// LoadConfig reads the first config.json that exists: in $DOCKER_CONFIG, in $HOME/.docker, in
// /root/.docker. Without one it returns an empty Config.
func LoadConfig() (Config, error) {
	var dirs []string
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		dirs = append(dirs, dir)
	}
	if home := os.Getenv("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".docker"))
	}
	for _, dir := range append(dirs, "/root/.docker") {
		c, err := readLogins(filepath.Join(dir, "config.json"))
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return Config{}, nil
}

func readLogins(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading registry credentials: %w", err)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("reading registry credentials from %q: %w", path, err)
	}
	return c, nil
}

// Credentials returns the user and the secret for a host, empty when there are none. An
// identity token comes with an empty user.
func (c Config) Credentials(ctx context.Context, host string) (user, secret string, err error) {
	for _, key := range names(host) {
		if helper := c.CredHelpers[key]; helper != "" {
			return runHelper(ctx, helper, key)
		}
	}
	for entry, auth := range c.Auths {
		if matches(entry, host) {
			if user, secret, err = auth.decode(); err != nil || secret != "" {
				return user, secret, err
			}
		}
	}
	if c.CredsStore == "" {
		return "", "", nil
	}
	return runHelper(ctx, c.CredsStore, names(host)[0])
}

// Login returns the user and the secret for a host, empty when there are none.
type Login func(ctx context.Context, host string) (user, secret string, err error)

// Logins returns the ways to log in for an image in the order in which they are tried: with
// the credentials given, then with those of the configuration, if it has some for the image's
// registry or nothing else was given. The credentials given are sent to every host that the
// image may come from, as containerd sends those of the kubelet to a mirror.
func (c Config) Logins(ctx context.Context, ref string, given []engine.Credential) []Login {
	all := make([]Login, 0, len(given)+1)
	for _, g := range given {
		all = append(all, func(context.Context, string) (string, string, error) { return g.User, g.Password, nil })
	}
	host, _, _ := strings.Cut(ref, "/")
	if len(given) > 0 {
		if _, secret, err := c.Credentials(ctx, host); err != nil || secret == "" {
			return all
		}
	}
	all = append(all, c.Credentials)
	return all
}

// names are the keys under which docker keeps a host's credentials.
func names(host string) []string {
	if host == hubHost || host == "docker.io" || host == "index.docker.io" {
		return []string{dockerHub, "docker.io", "index.docker.io", hubHost}
	}
	return []string{host}
}

// matches reports whether an entry of the configuration is for the host. Old entries are
// addresses with a scheme and a path.
func matches(entry, host string) bool {
	entry = strings.TrimPrefix(strings.TrimPrefix(entry, "https://"), "http://")
	entry, _, _ = strings.Cut(entry, "/")
	for _, name := range names(host) {
		name = strings.TrimPrefix(name, "https://")
		name, _, _ = strings.Cut(name, "/")
		if entry == name {
			return true
		}
	}
	return false
}

func (a Auth) decode() (user, secret string, err error) {
	switch {
	case a.IdentityToken != "":
		return "", a.IdentityToken, nil
	case a.Username != "":
		return a.Username, a.Password, nil
	case a.Auth == "":
		return "", "", nil
	}
	plain, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		return "", "", fmt.Errorf("decoding registry credentials: %w", err)
	}
	user, secret, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", "", errors.New("decoding registry credentials: there is no colon")
	}
	return user, strings.TrimRight(secret, "\x00"), nil
}

// runHelper asks docker-credential-NAME. A helper that has nothing for the host says so
// with an exit code, which is not an error.
func runHelper(ctx context.Context, name, host string) (user, secret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+name, "get")
	cmd.Stdin = strings.NewReader(host)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if strings.Contains(out.String(), "credentials not found") {
			return "", "", nil
		}
		return "", "", fmt.Errorf("asking credential helper %q: %w: %s", name, err, strings.TrimSpace(out.String()))
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return "", "", fmt.Errorf("asking credential helper %q: %w", name, err)
	}
	if got.Username == tokenUser {
		got.Username = ""
	}
	return got.Username, got.Secret, nil
}
