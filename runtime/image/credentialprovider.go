package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/runtime/engine"
)

// providerTimeout is the kubelet's.
const providerTimeout = time.Minute

// providerConfig is a document of kind CredentialProviderConfig. The kubelet's own type needs its
// packages for logging and tracing.
type providerConfig struct {
	metav1.TypeMeta `json:",inline"`
	Providers       []providerEntry `json:"providers"`
}

type providerEntry struct {
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	TokenAttributes any `json:"tokenAttributes"`
}

// provider is one of the kubelet's credential provider plugins (pkg/credentialprovider/plugin).
type provider struct {
	providerEntry
	program string
	turn    chan struct{} // holds a value while somebody uses the rest
	cache   map[string]cachedRing
}

type cachedRing struct {
	ring    ring
	expires time.Time
}

// readProviders reads a configuration, or all in a directory, and checks that the programs exist.
func readProviders(pipes *Pipes, path, programs string) ([]*provider, error) {
	files, err := providerFiles(path)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	var all []*provider
	names := map[string]bool{}
	for _, name := range files {
		config, err := readProviderConfig(pipes, name)
		if err != nil {
			return nil, fmt.Errorf("--image-credential-provider-config: %s: %w", name, err)
		}
		for i, e := range config.Providers {
			err := e.check()
			if err == nil && names[e.Name] {
				err = fmt.Errorf("name: %q appears twice", e.Name)
			}
			if err != nil {
				return nil, fmt.Errorf("--image-credential-provider-config: %s: providers[%d].%w", name, i, err)
			}
			names[e.Name] = true
			p := &provider{providerEntry: e, program: filepath.Join(programs, e.Name), turn: make(chan struct{}, 1), cache: map[string]cachedRing{}}
			if _, err := exec.LookPath(p.program); err != nil {
				return nil, fmt.Errorf("--image-credential-provider-bin-dir: no program %s for providers[%d] of %s: install it there: %w", p.program, i, name, errors.Unwrap(err))
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// providerFiles returns the file, or the configurations in the directory, by name.
func providerFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".json", ".yaml", ".yml":
			if !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(files) == 0 {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("no .json, .yaml or .yml file in this directory")}
	}
	return files, nil
}

func readProviderConfig(pipes *Pipes, path string) (config providerConfig, err error) {
	data, err := pipes.ReadFile(path)
	if err != nil {
		return config, errors.Unwrap(err)
	}
	if data, err = yaml.YAMLToJSONStrict(data); err != nil {
		return config, err
	}
	strict, err := kjson.UnmarshalStrict(data, &config)
	if err = errors.Join(append(strict, err)...); err != nil {
		return config, err
	}
	group, _, _ := strings.Cut(config.APIVersion, "/")
	switch {
	case config.Kind != "CredentialProviderConfig":
		return config, fmt.Errorf("kind: %q: must be CredentialProviderConfig", config.Kind)
	case group != "kubelet.config.k8s.io":
		return config, fmt.Errorf("apiVersion: %q: must be kubelet.config.k8s.io/v1", config.APIVersion)
	case len(config.Providers) == 0:
		return config, errors.New("providers: must have at least one provider")
	}
	return config, nil
}

// check returns the first error in the entry, beginning with its field.
func (e *providerEntry) check() error {
	switch {
	case e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/ "):
		return fmt.Errorf("name: %q: must be the name of a program, without '/' and spaces", e.Name)
	case e.APIVersion != credentialproviderv1.SchemeGroupVersion.String():
		return fmt.Errorf("apiVersion: %q: must be %s", e.APIVersion, credentialproviderv1.SchemeGroupVersion)
	case len(e.MatchImages) == 0:
		return errors.New("matchImages: must have at least one pattern, such as registry.example")
	case e.DefaultCacheDuration == nil || e.DefaultCacheDuration.Duration < 0:
		return errors.New(`defaultCacheDuration: must be a duration, such as "10m"`)
	case e.TokenAttributes != nil:
		return errors.New("tokenAttributes: not supported, since there is no API server that issues tokens: remove it")
	}
	for i, image := range e.MatchImages {
		if _, ok := keyOf(image); !ok || strings.Contains(image, "://") {
			return fmt.Errorf("matchImages[%d]: %q: must be a host, with a port and a path if need be", i, image)
		}
	}
	return nil
}

// provide adds the plugin's credentials for the name of an image without tag.
func (p *provider) provide(ctx context.Context, name string, to ring) error {
	if !slices.ContainsFunc(p.MatchImages, func(image string) bool { return matches(image, name) }) {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	got, ok := p.cached(name, time.Now())
	if !ok {
		response, err := p.ask(ctx, name)
		if err != nil {
			return fmt.Errorf("credential provider %q: %w", p.Name, err)
		}
		if got, err = p.keep(name, response, time.Now()); err != nil {
			return fmt.Errorf("credential provider %q: %w", p.Name, err)
		}
	}
	for key, credentials := range got {
		to[key] = append(to[key], credentials...)
	}
	return nil
}

// ask runs the plugin. What it has written to standard output is not in an error, since it may be
// a password.
func (p *provider) ask(ctx context.Context, name string) (*credentialproviderv1.CredentialProviderResponse, error) {
	kind := metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"}
	request, _ := json.Marshal(credentialproviderv1.CredentialProviderRequest{TypeMeta: kind, Image: name}) // texts
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, p.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, err := run(cmd, request)
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", p.program, err)
	}
	var response credentialproviderv1.CredentialProviderResponse
	if json.Unmarshal(out, &response) != nil {
		return nil, fmt.Errorf("%s does not print a CredentialProviderResponse as JSON", p.program)
	}
	if response.APIVersion != p.APIVersion || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("%s prints %q of %q, not CredentialProviderResponse of %q", p.program, response.Kind, response.APIVersion, p.APIVersion)
	}
	return &response, nil
}

// cached returns the credentials that an earlier response had for the image, its registry or all.
func (p *provider) cached(name string, now time.Time) (ring, bool) {
	host, _, _ := strings.Cut(name, "/")
	for _, key := range []string{name, host, ""} {
		if c, ok := p.cache[key]; ok && now.Before(c.expires) {
			return c.ring, true
		}
	}
	return nil, false
}

// keep returns the credentials of a response, and caches them for as long as it says.
func (p *provider) keep(name string, response *credentialproviderv1.CredentialProviderResponse, now time.Time) (ring, error) {
	key := ""
	switch response.CacheKeyType {
	case credentialproviderv1.ImagePluginCacheKeyType:
		key = name
	case credentialproviderv1.RegistryPluginCacheKeyType:
		key, _, _ = strings.Cut(name, "/")
	case credentialproviderv1.GlobalPluginCacheKeyType:
	default:
		return nil, fmt.Errorf("its response has the cacheKeyType %q: must be Image, Registry or Global", response.CacheKeyType)
	}
	got := ring{}
	for address, a := range response.Auth {
		got.add(address, engine.Credential{User: a.Username, Password: a.Password})
	}
	lasts := p.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		lasts = response.CacheDuration.Duration
	}
	if lasts > 0 {
		p.cache[key] = cachedRing{got, now.Add(lasts)}
	}
	return got, nil
}
