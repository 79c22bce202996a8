package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// Credentials returns those of the pull secrets that match the image, in the order in which
// the kubelet tries them: the entries with the longest names first, and for one name in the
// order of the secrets (pkg/credentialprovider/keyring.go). Secrets of other types are ignored.
func Credentials(secrets []*v1.Secret, name string) ([]engine.Credential, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", name, err)
	}
	ring := map[string][]engine.Credential{}
	for _, s := range secrets {
		entries, err := entriesOf(s)
		if err != nil {
			return nil, fmt.Errorf("pull secret %q: %w", s.Namespace+"/"+s.Name, err)
		}
		for _, address := range slices.Sorted(maps.Keys(entries)) {
			if key, ok := keyOf(address); ok {
				ring[key] = append(ring[key], entries[address].Credential)
			}
		}
	}
	var matching []engine.Credential
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(ring))) {
		if matches(key, named.Name()) {
			matching = append(matching, ring[key]...)
		}
	}
	if len(matching) == 0 && reference.Domain(named) == "docker.io" {
		matching = ring["index.docker.io"]
	}
	return matching, nil
}

// entry is an entry of a docker configuration.
type entry struct{ engine.Credential }

// UnmarshalJSON reads user and password, or base64 of both.
func (e *entry) UnmarshalJSON(data []byte) error {
	var in struct{ Username, Password, Auth string }
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	e.User, e.Password = in.Username, in.Password
	if in.Auth == "" {
		return nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(in.Auth), "="))
	if err != nil {
		return fmt.Errorf("auth is not base64: %w", err)
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return errors.New("auth must be base64 of user:password")
	}
	e.User, e.Password = user, password
	return nil
}

// entriesOf reads a secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.
func entriesOf(s *v1.Secret) (map[string]entry, error) {
	var file struct {
		Auths map[string]entry `json:"auths"`
	}
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		if err := json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &file); err != nil {
			return nil, fmt.Errorf("%s: %w", v1.DockerConfigJsonKey, err)
		}
	case v1.SecretTypeDockercfg:
		if err := json.Unmarshal(s.Data[v1.DockerConfigKey], &file.Auths); err != nil {
			return nil, fmt.Errorf("%s: %w", v1.DockerConfigKey, err)
		}
	default:
	}
	return file.Auths, nil
}

// keyOf returns the host and the path of an address, without /v1/ or /v2/.
func keyOf(address string) (string, bool) {
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p, true
}

// matches says whether a key is for the image: the parts of its host are patterns, its path
// is a prefix (URLsMatch).
func matches(key, image string) bool {
	wantHost, wantPath, _ := strings.Cut(key, "/")
	host, name, _ := strings.Cut(image, "/")
	want, wantPort := splitHost(wantHost)
	got, port := splitHost(host)
	if wantPort != port || len(want) != len(got) || !strings.HasPrefix(name, wantPath) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], got[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitHost(host string) (parts []string, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.Split(name, "."), port
}
