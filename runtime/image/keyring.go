package image

import (
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/runonce/runonce/runtime/engine"
)

// ring holds credentials as the kubelet's keyring does, by host and path.
type ring map[string][]engine.Credential

func (r ring) add(address string, c engine.Credential) {
	if key, ok := keyOf(address); ok {
		r[key] = append(r[key], c)
	}
}

// lookup returns the credentials for the name of an image without tag, the longest keys first.
func (r ring) lookup(name string) []engine.Credential {
	var matching []engine.Credential
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(r))) {
		if matches(key, name) {
			matching = append(matching, r[key]...)
		}
	}
	if host, _, _ := strings.Cut(name, "/"); len(matching) == 0 && host == hub {
		matching = r["index.docker.io"]
	}
	return matching
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
