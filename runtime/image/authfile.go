package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/runonce/runonce/runtime/engine"
)

const (
	// hub is the registry of images whose names have no host.
	hub = "docker.io"
	// hubAddress is what docker calls it in its configuration and to credential helpers.
	hubAddress = "https://index.docker.io/v1/"
)

// file is the part of docker's config.json and of podman's auth.json that holds credentials.
type file struct {
	path        string
	Auths       map[string]auth   `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

// auth is an entry for a registry or a part of one.
type auth struct {
	Auth          string `json:"auth"` // base64 of user:password
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

// readFile reads a file and checks all of its entries. The null device has none.
func readFile(pipes *Pipes, path string) (*file, error) {
	data, err := pipes.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading registry credentials: %w", err)
	}
	f := &file{path: path}
	if path == os.DevNull {
		return f, nil
	}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("reading registry credentials: %s: %w: correct the file or log in again", path, jsonError(data, err))
	}
	for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
		if _, err := f.Auths[key].credential(); err != nil {
			return nil, fmt.Errorf("reading registry credentials: %s: auths[%q]: %w: correct it or log in again", path, key, err)
		}
	}
	return f, nil
}

// jsonError adds the line to an error of the JSON decoder.
func jsonError(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	offset := int64(0)
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
		err = fmt.Errorf("%s: must not be a %s", kind.Field, kind.Value)
	default:
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(int(offset), len(data))], []byte("\n")), err)
}

// credential returns the user and the password, both empty if the entry has none. An identity
// token is a password without a user.
func (a auth) credential() (engine.Credential, error) {
	switch {
	case a.IdentityToken != "":
		return engine.Credential{Password: a.IdentityToken}, nil
	case a.Auth == "":
		return engine.Credential{User: a.Username, Password: a.Password}, nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(a.Auth), "="))
	if err != nil {
		return engine.Credential{}, fmt.Errorf("auth is not base64: %w", err)
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return engine.Credential{}, errors.New("auth must be base64 of user:password")
	}
	return engine.Credential{User: user, Password: strings.TrimRight(password, "\x00")}, nil
}

// lookup returns the credential for the name of an image without tag: of a helper for the
// registry, else of the entry with the longest matching key, else of the helper for all others.
func (f *file) lookup(ctx context.Context, name string) (engine.Credential, error) {
	host, _, _ := strings.Cut(name, "/")
	for _, key := range hostKeys(host) {
		if helper := f.CredHelpers[key]; helper != "" {
			return f.ask(ctx, helper, key)
		}
	}
	best, found := "", engine.Credential{}
	for _, address := range slices.Backward(slices.Sorted(maps.Keys(f.Auths))) {
		key := fileKey(address)
		if len(key) < len(best) || name != key && !strings.HasPrefix(name, key+"/") {
			continue
		}
		if key == best && strings.Contains(address, "://") {
			continue // the same registry by an older name
		}
		c, err := f.Auths[address].credential()
		if err != nil {
			return c, fmt.Errorf("%s: auths[%q]: %w", f.path, address, err)
		}
		if c.Password != "" {
			best, found = key, c
		}
	}
	if best != "" || f.CredsStore == "" {
		return found, nil
	}
	return f.ask(ctx, f.CredsStore, hostKeys(host)[0])
}

// hostKeys are the keys under which docker keeps the credentials of a registry.
func hostKeys(host string) []string {
	if isHub(host) {
		return []string{hubAddress, hub, "index.docker.io", "registry-1.docker.io"}
	}
	return []string{host}
}

func isHub(host string) bool {
	return host == hub || host == "index.docker.io" || host == "registry-1.docker.io"
}

// fileKey returns what has to begin the names of the images that an entry is for. Addresses with a
// scheme, which older versions of docker wrote, are for a whole registry.
func fileKey(address string) string {
	key, _ := keyOf(address)
	host, path, _ := strings.Cut(key, "/")
	if isHub(host) {
		host = hub
	}
	if path == "" || strings.Contains(address, "://") {
		return host
	}
	return host + "/" + strings.Trim(path, "/")
}
