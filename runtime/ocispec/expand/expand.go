// Package expand replaces $(NAME) references in strings as Kubernetes does.
package expand

import "strings"

// Expand returns s with each $(NAME) replaced by what lookup returns for NAME. It follows
// third_party/forked/golang/expansion: $$ stands for $, a name is any text up to the next
// closing bracket, a reference that lookup does not know and any other $ stay as they are,
// and values are not expanded again.
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		switch s[0] {
		case '$':
			b.WriteByte('$')
			s = s[1:]
		case '(':
			s = reference(&b, s[1:], lookup)
		default:
			b.WriteByte('$')
		}
	}
}

// reference writes the value of the reference at the head of s, whose opening is consumed,
// and returns what follows it.
func reference(b *strings.Builder, s string, lookup func(string) (string, bool)) string {
	name, rest, closed := strings.Cut(s, ")")
	if !closed {
		b.WriteString("$(")
		return s
	}
	if value, ok := lookup(name); ok {
		b.WriteString(value)
	} else {
		b.WriteString("$(" + name + ")")
	}
	return rest
}

// Env returns a lookup over KEY=VALUE strings, of which the last for a name counts.
func Env(env []string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for i := len(env) - 1; i >= 0; i-- {
			if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
				return v, true
			}
		}
		return "", false
	}
}
