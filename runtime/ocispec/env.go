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
// envFrom (sorted within an object) and of env, those of Services. Of equal names the last value counts, but
// a variable of a Service replaces none that the manifest declares. It
// follows the kubelet's makeEnvironmentVariables, whose order is random. A reference to
// something that does not exist is an error unless it is optional.
func Environment(c Context, container *v1.Container) ([]string, error) {
	own, err := declared(c, container)
	if err != nil {
		return nil, err
	}
	all := variables{"PATH=" + defaultPath}
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
	for _, kv := range own {
		k, v, _ := strings.Cut(kv, "=")
		all.set(k, v)
	}
	return all, nil
}

// variables are KEY=VALUE strings with unique names, in order of first definition.
type variables []string

func (v *variables) set(name, value string) {
	kv := name + "=" + value
	if i := slices.IndexFunc(*v, hasName(name)); i >= 0 {
		(*v)[i] = kv
	} else {
		*v = append(*v, kv)
	}
}

func (v *variables) unset(name string) { *v = slices.DeleteFunc(*v, hasName(name)) }

func hasName(name string) func(kv string) bool {
	prefix := name + "="
	return func(kv string) bool { return strings.HasPrefix(kv, prefix) }
}

// declared returns the variables that the manifest declares for the container, and those of Services: only these
// may be referred to by $(NAME), not those of the image.
func declared(c Context, container *v1.Container) (variables, error) {
	var own variables
	for _, from := range container.EnvFrom {
		data, err := c.envFrom(from)
		if err != nil {
			return nil, err
		}
		for _, k := range slices.Sorted(maps.Keys(data)) {
			own.set(from.Prefix+k, data[k])
		}
	}
	services := make(variables, 0, len(c.Services))
	for _, e := range c.Services {
		services.set(e.Name, e.Value)
	}
	for _, e := range container.Env {
		value, ok, err := envValue(c, container, e, slices.Concat(services, own))
		if err != nil {
			return nil, err
		}
		if ok {
			own.set(e.Name, value)
		}
	}
	for _, kv := range own {
		if name, _, _ := strings.Cut(kv, "="); strings.ContainsRune(kv, 0) {
			return nil, failure.ConfigErrorf("environment variable %q of container %q contains a NUL byte", name, container.Name)
		}
	}
	for _, e := range c.Services {
		if !slices.ContainsFunc(own, hasName(e.Name)) {
			own.set(e.Name, e.Value)
		}
	}
	return own, nil
}

// envFrom returns the data of the ConfigMap or Secret.
func (c Context) envFrom(from v1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		return c.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		return c.secret(from.SecretRef.Name, from.SecretRef.Optional)
	}
	return map[string]string{}, nil
}

// envValue returns the value of one variable; ok is false when it is optional and absent.
func envValue(c Context, container *v1.Container, e v1.EnvVar, own variables) (value string, ok bool, err error) {
	if e.Value != "" || e.ValueFrom == nil {
		return Expand(e.Value, LookupEnv(own)), true, nil
	}
	switch from := e.ValueFrom; {
	case from.FieldRef != nil:
		value, err = c.fieldValue(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = c.ResourceField(from.ResourceFieldRef, container)
	case from.ConfigMapKeyRef != nil:
		data, err := c.configMap(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		return c.keyOf("ConfigMap", from.ConfigMapKeyRef, data, err)
	case from.SecretKeyRef != nil:
		data, err := c.secret(from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		return c.keyOf("Secret", (*v1.ConfigMapKeySelector)(from.SecretKeyRef), data, err)
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

// keyOf returns the value of a key of a ConfigMap or a Secret, whose data it is given.
func (c Context) keyOf(kind string, ref *v1.ConfigMapKeySelector, data map[string]string, err error) (string, bool, error) {
	value, ok := data[ref.Key]
	if err == nil && !ok && !isTrue(ref.Optional) {
		err = failure.ConfigErrorf("couldn't find key %v in %s %v/%v", ref.Key, kind, c.Pod.Namespace, ref.Name)
	}
	return value, ok, err
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

// configMap returns the data of the ConfigMap, none when it is optional and absent.
func (c Context) configMap(name string, optional *bool) (map[string]string, error) {
	m, ok := c.Objects.ConfigMap(c.Pod.Namespace, name)
	switch {
	case ok:
		return m.Data, nil
	case isTrue(optional):
		return map[string]string{}, nil
	}
	return nil, failure.ConfigErrorf("configmap %q not found", name)
}

// secret returns the data of the Secret, none when it is optional and absent.
func (c Context) secret(name string, optional *bool) (map[string]string, error) {
	s, ok := c.Objects.Secret(c.Pod.Namespace, name)
	if !ok && !isTrue(optional) {
		return nil, failure.ConfigErrorf("secret %q not found", name)
	}
	data := map[string]string{}
	if ok {
		for k, v := range s.Data {
			data[k] = string(v)
		}
	}
	return data, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
