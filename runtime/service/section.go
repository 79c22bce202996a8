package service

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

// entry is a line of a hosts file.
type entry struct {
	ip    netip.Addr
	names []string
}

// line returns the entry as it is in a file, without the names that are taken; without a name it is empty.
func (e entry) line(taken map[string]bool) string {
	names := e.names
	if taken != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return taken[name] })
	}
	if len(names) == 0 {
		return ""
	}
	return e.ip.String() + "\t" + strings.Join(names, "\t") + "\n"
}

// section is what the hosts files of a namespace's pods have in common. It is rendered once for all of them, since
// each pod that comes changes the files of all others.
type section struct {
	entries []entry
	text    string
	starts  []int // of the entries' lines in the text, and its end
}

func newSection(entries []entry) *section {
	s := &section{entries: entries, starts: make([]int, 1, len(entries)+1)}
	var text strings.Builder
	for _, e := range entries {
		text.WriteString(e.line(nil))
		s.starts = append(s.starts, text.Len())
	}
	s.text = text.String()
	return s
}

// without appends the text without the names that are taken.
func (s *section) without(file []byte, taken map[string]bool) []byte {
	end := 0
	for i, e := range s.entries {
		if slices.ContainsFunc(e.names, func(name string) bool { return taken[name] }) {
			file = append(file, s.text[end:s.starts[i]]...)
			file = append(file, e.line(taken)...)
			end = s.starts[i+1]
		}
	}
	return append(file, s.text[end:]...)
}

// The lines around the names in a hosts file. What a container writes before or after them stays.
const (
	beginNames = "# Names of Services and pods, kept up to date by runonce.\n"
	endNames   = "# End of these names.\n"
)

// in appends to next the hosts file with these names in place of those that it had, except those that it has otherwise: the
// pod's own, and those of its hostAliases.
func (s *section) in(next, file []byte) []byte {
	before, rest, had := bytes.Cut(file, []byte(beginNames))
	_, after, _ := bytes.Cut(rest, []byte(endNames))
	taken := map[string]bool{}
	for line := range strings.Lines(string(before) + string(after)) {
		line, _, _ = strings.Cut(line, "#")
		for i, name := range strings.Fields(line) {
			if i > 0 {
				taken[name] = true
			}
		}
	}
	begin := len(next)
	if had {
		next = append(next, before...)
	} else {
		next = append(next, bytes.TrimRight(before, "\n")...)
		next = append(next, "\n\n"...)
	}
	next = append(next, beginNames...)
	names := len(next)
	if next = s.without(next, taken); !had && len(next) == names {
		return append(next[:begin], file...)
	}
	next = append(next, endNames...)
	return append(next, after...)
}
