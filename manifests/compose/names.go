package compose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxName is the length of the longest name that every object may have, even with what a workload adds to those of its pods.
const maxName = 52

// objectName returns the name as that of an object: a DNS label that begins with a letter.
func objectName(name string) string {
	label := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name), "-")
	if label == "" || '0' <= label[0] && label[0] <= '9' {
		label = strings.TrimSuffix("x-"+label, "-")
	}
	return strings.TrimRight(label[:min(len(label), maxName)], "-")
}

// objectNames returns the names of objects by their keys in a section of the files. Wanted are the names that they should have. Two
// with the same name are an error.
func (c *converter) objectNames(section string, wanted map[string]string) map[string]string {
	names, taken := map[string]string{}, map[string]string{}
	for _, key := range sorted(wanted) {
		name := objectName(wanted[key])
		if other, ok := taken[name]; ok {
			c.fail(place{section, key}, "is named %s here, as %s.%s is: rename one of them", name, section, other)
		}
		names[key], taken[name] = name, key
	}
	return names
}

// setNames names all objects: by their keys, or as others know them.
func (c *converter) setNames() {
	services, volumes, configs, secrets := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for key := range c.Services {
		services[key] = key
	}
	for key, v := range c.Volumes {
		volumes[key] = c.known(key, v.Name, bool(v.External))
	}
	for key, v := range c.Configs {
		configs[key] = c.known(key, v.Name, bool(v.External))
	}
	for key, v := range c.Secrets {
		secrets[key] = c.known(key, v.Name, bool(v.External))
	}
	c.names = c.objectNames("services", services)
	c.claimNames = c.objectNames("volumes", volumes)
	c.configNames = c.objectNames("configs", configs)
	c.secretNames = c.objectNames("secrets", secrets)
}

// known returns the key of something, or the name that the files give it if it is not the one that docker compose makes of the key.
func (c *converter) known(key, name string, external bool) string {
	if external || name != c.Name+"_"+key {
		return cmp.Or(name, key)
	}
	return key
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// list joins words as in a sentence.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return fmt.Sprintf("%s and %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}
