package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests"
)

// secretForm is the form of --secret. Names and keys have no colon.
var secretForm = regexp.MustCompile(`^(?:([^/:=]+)/)?([^/:=]+)(?::([^/:=]+))?=(file|env|credential):(.+)$`)

// credentialsVariable names the directory of the credentials that systemd passes to a service.
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// parseSecret reads a value of --secret, [NAMESPACE/]NAME[:KEY]=SOURCE. The source is read later, each time
// that manifests are read.
func (c *console) parseSecret(text string) (manifests.SecretKey, error) {
	m := secretForm.FindStringSubmatch(text)
	if m == nil {
		// Whoever gives a value here by mistake must not find it in a log.
		name, _, _ := strings.Cut(text, "=")
		return manifests.SecretKey{}, usagef("--secret %s: must be [NAMESPACE/]NAME[:KEY]=SOURCE, with file:PATH, env:VAR or credential:NAME as SOURCE", name)
	}
	k := manifests.SecretKey{Namespace: m[1], Name: m[2], Key: m[3], Title: "--secret " + text}
	kind, from := m[4], m[5]
	switch kind {
	case "file":
		k.Path = from
		k.Read = func() ([]byte, error) { return readSecret(from) }
	case "env":
		k.Read = func() ([]byte, error) { return c.secretVariable(from) }
	case "credential":
		k.Read = func() ([]byte, error) { return c.credential(from) }
		k.Path = filepath.Join(c.io.Getenv(credentialsVariable), from)
	}
	if k.Key == "" {
		k.Key = filepath.Base(from)
	}
	return k, nil
}

// readSecret reads a file that is not larger than a Secret may be.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	value, err := io.ReadAll(io.LimitReader(f, v1.MaxSecretSize+1))
	if err == nil && len(value) > v1.MaxSecretSize {
		err = fmt.Errorf("%s is larger than a Secret may be, 1 MiB", path)
	}
	return value, err
}

func (c *console) secretVariable(name string) ([]byte, error) {
	for _, e := range slices.Backward(c.environ()) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return []byte(value), nil
		}
	}
	return nil, fmt.Errorf("the environment variable %s is not set", name)
}

// credential reads a credential that systemd has passed to this service.
func (c *console) credential(name string) ([]byte, error) {
	dir := c.io.Getenv(credentialsVariable)
	switch {
	case strings.Contains(name, "/"):
		return nil, errors.New("the name of a credential has no slash")
	case dir == "":
		return nil, fmt.Errorf("systemd has passed no credentials: $%s is not set; use LoadCredential=%s:PATH in the unit", credentialsVariable, name)
	}
	return readSecret(filepath.Join(dir, name))
}
