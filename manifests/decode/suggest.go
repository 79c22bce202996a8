package decode

import (
	"bytes"
	"fmt"
	"strings"
)

// template says so when the text holds what a template engine should have replaced, and
// else returns "".
func template(text []byte) string {
	for _, mark := range [][2]string{{"{{", "}}"}, {"{%", "%}"}, {"${", "}"}, {"<%", "%>"}} {
		i := bytes.Index(text, []byte(mark[0]))
		if i >= 0 && bytes.Contains(text[i:], []byte(mark[1])) {
			return "looks like an unrendered template: " + mark[0] + " " + mark[1]
		}
	}
	return ""
}

// invisible names a character in the text that looks like a space or like nothing, and
// that no manifest means, or returns "".
func invisible(text []byte) string {
	for _, r := range string(text) {
		switch r {
		case '\u00a0', '\u2007', '\u202f', '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff', '\u00ad', '\u3000':
			return fmt.Sprintf("contains the invisible character %U: retype the text", r)
		}
	}
	return ""
}

// Nearest returns the one of names that name was probably meant to be, or "".
func Nearest(name string, names []string) string {
	const longest = 64
	if len(name) > longest {
		return ""
	}
	best, least := "", 1+len(name)/3
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least || (d == least && best == "") {
			best, least = n, d
		}
	}
	return best
}

// DidYouMean suggests the one of names that name was probably meant to be, or returns "".
func DidYouMean(name string, names []string) string {
	near := Nearest(name, names)
	if near == "" || near == name {
		return ""
	}
	return "did you mean " + near + "?"
}

// distance counts the letters to insert, drop, change or swap to get from a to b.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
