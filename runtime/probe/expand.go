package probe

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expandStatic replaces $(NAME) in a command by the literal values of the container's env, as
// the kubelet does for probes (ExpandContainerCommandOnlyStatic). $$ stands for $, and what
// cannot be resolved stays.
func expandStatic(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Name] = e.Value
	}
	expanded := make([]string, 0, len(command))
	for _, c := range command {
		expanded = append(expanded, expand(c, values))
	}
	return expanded
}

func expand(s string, values map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$"):
			out.WriteByte('$')
			s = s[1:]
		case strings.HasPrefix(s, "("):
			name, rest, closed := strings.Cut(s[1:], ")")
			value, known := values[name]
			switch {
			case !closed:
				out.WriteString("$")
			case known:
				out.WriteString(value)
				s = rest
			default:
				out.WriteString("$(" + name + ")")
				s = rest
			}
		default:
			out.WriteByte('$')
		}
	}
}
