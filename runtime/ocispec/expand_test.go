package ocispec

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func testLookup(name string) (string, bool) {
	v, ok := map[string]string{"A": "a", "EMPTY": "", "REF": "$(A)", "x y": "spaced", "": "nameless"}[name]
	return v, ok
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "a", "x$(A)y$(A)": "xaya", "$$": "$", "$$(A)": "$(A)", "$$$(A)": "$a",
		"$$$$(A)": "$$(A)", "$": "$", "a$": "a$", "$A": "$A", "${A}": "${A}", "$(": "$(", "$(A": "$(A", "$(NONE)": "$(NONE)",
		"$(EMPTY)": "", "$(REF)": "$(A)", "$(x y)": "spaced", "$()": "nameless", "$($(A))": "$($(A))", "$(A))": "a)",
		"($(A))": "(a)", "$é$(A)": "$éa", "$(A)$": "a$", "$$)$(A)": "$)a",
	} {
		if got := Expand(in, testLookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLookupEnv(t *testing.T) {
	t.Parallel()
	get := LookupEnv([]string{"A=1", "B=x=y", "A=2", "odd"})
	for name, want := range map[string]string{"A": "2", "B": "x=y"} {
		if v, ok := get(name); !ok || v != want {
			t.Errorf("%s = %q, %v, want %q", name, v, ok, want)
		}
	}
	for _, name := range []string{"C", "odd", ""} {
		if _, ok := get(name); ok {
			t.Errorf("%q is found", name)
		}
	}
}

// upstream is a transliteration of the reference to check against: byte by byte.
func upstream(in string, get func(string) (string, bool)) string {
	var b strings.Builder
	mark := 0
	for i := 0; i < len(in); i++ {
		if in[i] != '$' || i+1 >= len(in) {
			continue
		}
		b.WriteString(in[mark:i])
		rest := in[i+1:]
		advance := 0
		switch r, size := utf8.DecodeRuneInString(rest); {
		case rest[0] == '$':
			b.WriteString("$")
			advance = 1
		case rest[0] == '(' && strings.Contains(rest, ")"):
			end := strings.IndexByte(rest, ')')
			if v, ok := get(rest[1:end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + rest[1:end] + ")")
			}
			advance = end + 1
		case rest[0] == '(':
			b.WriteString("$(")
			advance = 1
		case r == utf8.RuneError && size == 1:
			b.WriteString("$" + rest[:1])
			advance = 1
		default:
			b.WriteString("$" + string(r))
			advance = size
		}
		i += advance
		mark = i + 1
	}
	return b.String() + in[mark:]
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)$$(A)$(", "$$$(REF)$x$(EMPTY)", "$(x y)$()", "é$é$(A)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got := Expand(in, testLookup)
		if want := upstream(in, testLookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
		if none := Expand(in, func(string) (string, bool) { return "", false }); !strings.Contains(in, "$$") && none != in {
			t.Errorf("Expand(%q) without variables = %q", in, none)
		}
	})
}

func BenchmarkExpand(b *testing.B) {
	s := strings.Repeat("--flag=$(A) $$(B) plain text without any reference at all ", 20)
	for b.Loop() {
		Expand(s, testLookup)
	}
}
