package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"

	"github.com/runonce/runonce/internal/failure"
)

// hostsFile has the fields of a hosts.toml that containerd knows.
type hostsFile struct {
	hostEntry
	Server string               `toml:"server"`
	Host   map[string]hostEntry `toml:"host"`
}

type hostEntry struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`
	Client       any            `toml:"client"`
	SkipVerify   *bool          `toml:"skip_verify"`
	Header       map[string]any `toml:"header"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
}

// Check returns an error for files with credentials, and for hosts files of the images' registries,
// that cannot be used. containerd itself ignores such a hosts file, and would ask the registry
// instead of a mirror.
func (r Registries) Check(refs []string) error {
	failed := []error{r.Keychain.Check()}
	for _, host := range registriesOf(refs) {
		if err := r.checkHost(host); err != nil {
			failed = append(failed, fmt.Errorf("reading the configuration of registry %s: %w", host, err))
		}
	}
	return errors.Join(failed...)
}

// registriesOf returns the registries of images, sorted and each once.
func registriesOf(refs []string) []string {
	hosts := make([]string, 0, len(refs))
	for _, ref := range refs {
		host, _, _ := strings.Cut(ref, "/")
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func (r Registries) checkHost(host string) error {
	dir, err := config.HostDirFromRoot(r.CertsDir)(host)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "hosts.toml")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := checkHostsFile(data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// This reads the certificates as well.
	if _, err := config.ConfigureHosts(context.Background(), r.hostOptions())(host); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func checkHostsFile(data []byte) error {
	var f hostsFile
	d := toml.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	var unknown *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		line, _ := unknown.Errors[0].Position()
		return fmt.Errorf("line %d: unknown field %s", line, strings.Join(unknown.Errors[0].Key(), "."))
	case errors.As(err, &bad):
		line, _ := bad.Position()
		return fmt.Errorf("line %d: %w", line, err)
	case err != nil:
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	for name, e := range f.Host {
		if err := e.check(); err != nil {
			return fmt.Errorf("host.%q.%w", name, err)
		}
	}
	return nil
}

func (e hostEntry) check() error {
	for _, c := range e.Capabilities {
		switch strings.ToLower(c) {
		case "pull", "resolve", "push", "referrers":
		default:
			return fmt.Errorf("capabilities: %q: must be pull, resolve, push or referrers", c)
		}
	}
	if _, err := time.ParseDuration(e.DialTimeout); e.DialTimeout != "" && err != nil {
		return fmt.Errorf("dial_timeout: %q: must be a duration, such as 10s", e.DialTimeout)
	}
	if !isPaths(e.CA) {
		return errors.New("ca: must be the path of a file, or a list of them")
	}
	if client, ok := e.Client.([]any); ok && !slices.ContainsFunc(client, func(v any) bool { return !isPaths(v) }) {
		return nil
	}
	if !isPaths(e.Client) {
		return errors.New("client: must be the path of a file, or a list of paths or of pairs of certificate and key")
	}
	return nil
}

// isPaths reports whether the value is absent, a path, or a list of paths.
func isPaths(v any) bool {
	switch v := v.(type) {
	case nil, string:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(p any) bool { _, ok := p.(string); return !ok })
	}
	return false
}

// advice says what to change in the hosts files after a failed pull, after a separator; "" for nothing.
func (r Registries) advice(ref string, err error) (text string) {
	host, _, _ := strings.Cut(ref, "/")
	if failure.IsUntrusted(err) {
		text = fmt.Sprintf(": %s, or as ca.crt to %s", failure.AdviceUntrusted, filepath.Join(r.CertsDir, directoryOf(host)))
		dir, _ := config.HostDirFromRoot(r.CertsDir)(host) // without one, the advice stands
		file := filepath.Join(dir, "hosts.toml")
		if _, serr := os.Stat(file); dir != "" && serr == nil {
			text = fmt.Sprintf(": %s, or as ca to %s", failure.AdviceUntrusted, file)
		}
	}
	for _, ignored := range r.Ignored([]string{ref}) {
		text += "; " + ignored
	}
	return text
}

// Ignored says which directories of hosts files are not used for the registries of the images, because
// their names lack the port.
func (r Registries) Ignored(refs []string) (texts []string) {
	path := func(name string) string { return filepath.Join(r.CertsDir, name) }
	exists := func(name string) bool {
		_, err := os.Stat(path(name))
		return err == nil
	}
	for _, registry := range registriesOf(refs) {
		host, port, err := net.SplitHostPort(registry)
		if err == nil && exists(host) && !exists(registry) && !exists(directoryOf(registry)) {
			texts = append(texts, fmt.Sprintf("%s is not for port %s: registry %s needs %s", path(host), port, registry, path(directoryOf(registry))))
		}
	}
	return texts
}

// directoryOf is the name of the directory with the hosts files of a registry; containerd also takes one
// with a colon.
func directoryOf(registry string) string {
	if i := strings.LastIndexByte(registry, ':'); i > 0 {
		return registry[:i] + "_" + registry[i+1:] + "_"
	}
	return registry
}
