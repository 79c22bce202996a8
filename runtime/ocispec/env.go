package ocispec

import (
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// defaultPath is the PATH of a container whose image sets none (containerd's
// WithDefaultPathEnv).
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment returns the container's environment as KEY=VALUE strings, each name once,
// in order of first definition: a default PATH, HOSTNAME, the image's variables, those of
// envFrom (sorted within an object) and of env. Of equal names the last value counts. It
// follows the kubelet's makeEnvironmentVariables, whose order is random. A reference to
// what is not there is an error unless it is optional.
func Environment(c Context, container *v1.Container) ([]string, error) {
	own, err := declared(c, container)
	if err != nil {
		return nil, err
	}
	var all vars
	all.set("PATH", defaultPath)
	if c.Sandbox.Hostname != "" {
		all.set("HOSTNAME", c.Sandbox.Hostname)
	}
	for _, kv := range c.Image.Env {
		// A name without a value unsets it (containerd's replaceOrAppendEnvValues).
		if k, v, ok := strings.Cut(kv, "="); ok {
			all.set(k, v)
		} else {
			all.unset(kv)
		}
	}
	for _, k := range own.names {
		all.set(k, own.values[k])
	}
	return all.list(), nil
}

// vars are variables in order of first definition.
type vars struct {
	names  []string
	values map[string]string
}

func (v *vars) set(name, value string) {
	if v.values == nil {
		v.values = map[string]string{}
	}
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *vars) unset(name string) {
	delete(v.values, name)
	v.names = slices.DeleteFunc(v.names, func(n string) bool { return n == name })
}

func (v *vars) get(name string) (string, bool) {
	value, ok := v.values[name]
	return value, ok
}

func (v *vars) list() []string {
	l := make([]string, 0, len(v.names))
	for _, n := range v.names {
		l = append(l, n+"="+v.values[n])
	}
	return l
}

// declared returns the variables that the manifest declares for the container: only these
// may be referred to by $(NAME), not those of the image.
func declared(c Context, container *v1.Container) (*vars, error) {
	own := &vars{}
	for i := range container.EnvFrom {
		if err := envFrom(c, &container.EnvFrom[i], own); err != nil {
			return nil, err
		}
	}
	for i := range container.Env {
		e := &container.Env[i]
		value, ok, err := envValue(c, container, e, own)
		if err != nil {
			return nil, err
		}
		if ok {
			own.set(e.Name, value)
		}
	}
	for _, name := range own.names {
		if strings.ContainsRune(name, 0) || strings.ContainsRune(own.values[name], 0) {
			return nil, failure.ConfigErrorf("environment variable %q of container %q contains a NUL byte", name, container.Name)
		}
	}
	return own, nil
}

// envFrom adds every entry of a ConfigMap or Secret.
func envFrom(c Context, from *v1.EnvFromSource, own *vars) error {
	switch {
	case from.ConfigMapRef != nil:
		m, err := c.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(m.Data)) {
			own.set(from.Prefix+k, m.Data[k])
		}
	case from.SecretRef != nil:
		s, err := c.secret(from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(s.Data)) {
			own.set(from.Prefix+k, string(s.Data[k]))
		}
	}
	return nil
}

// envValue returns the value of one variable; ok is false when it is optional and absent.
func envValue(c Context, container *v1.Container, e *v1.EnvVar, own *vars) (value string, ok bool, err error) {
	if e.Value != "" || e.ValueFrom == nil {
		return Expand(e.Value, own.get), true, nil
	}
	switch from := e.ValueFrom; {
	case from.FieldRef != nil:
		value, err = c.fieldValue(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = c.ResourceField(from.ResourceFieldRef, container)
	case from.ConfigMapKeyRef != nil:
		return c.configMapKey(from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return c.secretKey(from.SecretKeyRef)
	case from.FileKeyRef != nil && c.File != nil:
		return c.fileKey(from.FileKeyRef)
	default:
		err = errors.New("this kind of valueFrom is not supported")
	}
	if err != nil {
		return "", false, failure.ConfigErrorf("environment variable %q of container %q: %w", e.Name, container.Name, err)
	}
	return value, true, nil
}

func (c Context) configMapKey(ref *v1.ConfigMapKeySelector) (value string, ok bool, err error) {
	m, err := c.configMap(ref.Name, ref.Optional)
	if err != nil {
		return "", false, err
	}
	value, ok = m.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, failure.ConfigErrorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, c.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (c Context) secretKey(ref *v1.SecretKeySelector) (value string, ok bool, err error) {
	s, err := c.secret(ref.Name, ref.Optional)
	if err != nil {
		return "", false, err
	}
	data, ok := s.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, failure.ConfigErrorf("couldn't find key %v in Secret %v/%v", ref.Key, c.Pod.Namespace, ref.Name)
	}
	return string(data), ok, nil
}

// fileKey reads a variable from an environment file that an init container has written.
func (c Context) fileKey(ref *v1.FileKeySelector) (value string, ok bool, err error) {
	data, err := c.File(ref.VolumeName, ref.Path)
	if err == nil {
		value, ok, err = envFileValue(string(data), ref.Key)
	}
	if err != nil {
		return "", false, failure.ConfigErrorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !ok && !isTrue(ref.Optional) {
		return "", false, failure.ConfigErrorf("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
	}
	return value, ok, nil
}

// configMap returns the ConfigMap of that name, an empty one when it is optional and absent.
func (c Context) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	if m, ok := c.Objects.ConfigMap(c.Pod.Namespace, name); ok {
		return m, nil
	}
	if isTrue(optional) {
		return &v1.ConfigMap{}, nil
	}
	return nil, failure.ConfigErrorf("configmap %q not found", name)
}

// secret returns the Secret of that name, an empty one when it is optional and absent.
func (c Context) secret(name string, optional *bool) (*v1.Secret, error) {
	if s, ok := c.Objects.Secret(c.Pod.Namespace, name); ok {
		return s, nil
	}
	if isTrue(optional) {
		return &v1.Secret{}, nil
	}
	return nil, failure.ConfigErrorf("secret %q not found", name)
}

func isTrue(b *bool) bool { return b != nil && *b }
