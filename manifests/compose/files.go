package compose

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxObject is how large the files of a ConfigMap or a Secret may be.
	maxObject = 1 << 20
	// fileMode is that of configs and secrets.
	fileMode = 0o444
)

// fileReference is a config or secret that a container has as a file.
type fileReference struct {
	at     place
	key    string // in the files
	name   string // of the object
	path   string // in the container
	secret bool
	types.FileReferenceConfig
}

// fileMounts gives a container its configs and secrets, each as a file.
func (p *pod) fileMounts(at place, s *types.ContainerSpec, container *v1.Container) {
	for _, r := range s.Configs {
		f := fileReference{at: at.at("configs", item(r.Source)), key: r.Source, FileReferenceConfig: types.FileReferenceConfig(r)}
		f.name, f.path = p.config(r.Source), path.Join("/", cmp.Or(r.Target, r.Source))
		container.VolumeMounts = append(container.VolumeMounts, p.file(f))
	}
	for _, r := range s.Secrets {
		f := fileReference{at: at.at("secrets", item(r.Source)), key: r.Source, secret: true, FileReferenceConfig: types.FileReferenceConfig(r)}
		f.name, f.path = p.secret(r.Source), cmp.Or(r.Target, r.Source)
		if !path.IsAbs(f.path) {
			f.path = path.Join("/run/secrets", f.path)
		}
		container.VolumeMounts = append(container.VolumeMounts, p.file(f))
	}
}

// file mounts one file.
func (p *pod) file(f fileReference) v1.VolumeMount {
	mode := int32(fileMode)
	if f.Mode != nil {
		mode = int32(*f.Mode) & 0o777
	}
	file := v1.KeyToPath{Key: f.key, Path: f.key, Mode: &mode}
	if id, err := strconv.ParseInt(f.UID, 10, 64); err == nil && id != 0 {
		file.User = &id
	} else if f.UID != "" && err != nil {
		p.warn(f.at, "users are given by numbers: the file belongs to root")
	}
	if f.GID != "" && f.GID != "0" {
		p.warn(f.at, "the file belongs to the group of root, not to %s", f.GID)
	}
	items := []v1.KeyToPath{file}
	source, prefix := v1.VolumeSource{}, "config-"
	if f.secret {
		prefix, source.Secret = "secret-", &v1.SecretVolumeSource{SecretName: f.name, Items: items}
	} else {
		source.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: f.name}, Items: items}
	}
	return v1.VolumeMount{Name: p.volume(prefix+f.name, source), MountPath: f.path, SubPath: f.key, ReadOnly: true}
}

// config makes the ConfigMap of a config and returns its name.
func (c *converter) config(key string) string {
	f, at := types.FileObjectConfig(c.Configs[key]), place{"configs", key}
	name := c.configNames[key]
	if bool(f.External) {
		c.warn(at, "is not in these files: give the ConfigMap %s with the key %s when you run the pods", name, key)
		return name
	}
	if c.configMaps[name] != nil {
		return name
	}
	object := &v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: c.meta(name)}
	if content := c.content(at, f); utf8.Valid(content) {
		object.Data = map[string]string{key: string(content)}
	} else {
		object.BinaryData = map[string][]byte{key: content}
	}
	c.configMaps[name] = object
	return name
}

// secret makes the Secret of a secret and returns its name.
func (c *converter) secret(key string) string {
	f, at := types.FileObjectConfig(c.Secrets[key]), place{"secrets", key}
	name := c.secretNames[key]
	if bool(f.External) {
		c.warn(at, "is not in these files: give it when you run the pods, with --secret %s:%s=file:PATH", name, key)
		return name
	}
	if c.secrets[name] != nil {
		return name
	}
	object := &v1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: c.meta(name)}
	if content := c.content(at, f); utf8.Valid(content) {
		object.StringData = map[string]string{key: string(content)}
	} else {
		object.Data = map[string][]byte{key: content}
	}
	c.secrets[name] = object
	return name
}

// content returns what is in a config or a secret.
func (c *converter) content(at place, f types.FileObjectConfig) []byte {
	if f.TemplateDriver != "" || f.Driver != "" {
		c.fail(at, "drivers of configs and secrets do not exist here")
		return nil
	}
	if f.Environment != "" {
		if _, ok := c.Environment[f.Environment]; !ok {
			c.fail(at.at("environment"), "the variable %s is not set", f.Environment)
		}
		return []byte(f.Content)
	}
	if f.File == "" {
		return []byte(f.Content)
	}
	content, err := c.readFile(f.File)
	switch {
	case err != nil:
		c.fail(at.at("file"), "cannot be read: %v", err)
	case len(content) > maxObject:
		c.fail(at.at("file"), "%s is larger than 1 MiB, which no ConfigMap or Secret may be: mount it as a volume", f.File)
	}
	return content
}

func (c *converter) readFile(name string) ([]byte, error) {
	if c.options.Machine == nil {
		return nil, fs.ErrNotExist
	}
	content, err := fs.ReadFile(c.options.Machine, strings.TrimPrefix(path.Clean(name), "/"))
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		pathError.Path = name
	}
	return content, err
}

// claim makes the claim of a volume.
func (c *converter) claim(key string) {
	name := c.claimNames[key]
	claim := &v1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: c.meta(name)}
	claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	c.claims[name] = claim
}

func newRuntimeClass(name string) runtime.Object {
	return &nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name}
}

// shared returns the files of objects that several services may use.
func (c *converter) shared() (files []File) {
	for _, f := range []File{
		{Name: "claims.yaml", Objects: inOrder(c.claims)},
		{Name: "configs.yaml", Objects: inOrder(c.configMaps)},
		{Name: "runtimes.yaml", Objects: inOrder(c.classes)},
		{Name: "secrets.yaml", Objects: inOrder(c.secrets), Secret: true},
	} {
		if len(f.Objects) == 0 {
			continue
		}
		if stem := strings.TrimSuffix(f.Name, ".yaml"); slices.Contains(slices.Collect(maps.Values(c.names)), stem) {
			f.Name = "project-" + f.Name
		}
		files = append(files, f)
	}
	return files
}

func inOrder(m map[string]runtime.Object) []runtime.Object {
	all := make([]runtime.Object, 0, len(m))
	for _, name := range sorted(m) {
		all = append(all, m[name])
	}
	return all
}
