package ocispec

import (
	"slices"
	"strings"
)

// Expand returns s with each $(NAME) replaced by what lookup returns for NAME, as in
// third_party/forked/golang/expansion: $$ stands for $, a name is any text up to the next
// closing parenthesis, a reference to an unknown variable and any other $ stay as they are,
// and values are not expanded again.
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(s, "$")
		b.WriteString(text)
		if !found {
			return b.String()
		}
		s = rest
		if after, ok := strings.CutPrefix(s, "$"); ok {
			b.WriteByte('$')
			s = after
			continue
		}
		name, after, ok := strings.Cut(strings.TrimPrefix(s, "("), ")")
		if !ok || !strings.HasPrefix(s, "(") {
			b.WriteByte('$')
			continue
		}
		s = after
		if value, ok := lookup(name); ok {
			b.WriteString(value)
		} else {
			b.WriteString("$(" + name + ")")
		}
	}
}

// LookupEnv returns a lookup for Expand over KEY=VALUE strings; of equal names the last one
// counts.
func LookupEnv(env []string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range slices.Backward(env) {
			if k, v, ok := strings.Cut(kv, "="); ok && k == name {
				return v, true
			}
		}
		return "", false
	}
}
