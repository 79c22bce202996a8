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
	starts  []int            // of the entries' lines in the text, and its end
	having  map[string][]int // the entries with a name
}

func newSection(entries []entry) *section {
	s := &section{entries: entries, starts: make([]int, 1, len(entries)+1), having: make(map[string][]int, 2*len(entries))}
	var text strings.Builder
	for i, e := range entries {
		text.WriteString(e.line(nil))
		s.starts = append(s.starts, text.Len())
		for _, name := range e.names {
			s.having[name] = append(s.having[name], i)
		}
	}
	s.text = text.String()
	return s
}

// without returns the text without the names that are taken.
func (s *section) without(taken map[string]bool) string {
	var changed []int
	for name := range taken {
		changed = append(changed, s.having[name]...)
	}
	slices.Sort(changed)
	var text strings.Builder
	end := 0
	for _, i := range slices.Compact(changed) {
		text.WriteString(s.text[end:s.starts[i]])
		text.WriteString(s.entries[i].line(taken))
		end = s.starts[i+1]
	}
	text.WriteString(s.text[end:])
	return text.String()
}

// The lines around the names in a hosts file. What a container writes before or after them stays.
const (
	beginNames = "# Names of Services and pods, kept up to date by runonce.\n"
	endNames   = "# End of these names.\n"
)

// in returns the hosts file with these names in place of those that it had, except those that it has otherwise: the
// pod's own, and those of its hostAliases.
func (s *section) in(file []byte) []byte {
	before, rest, had := bytes.Cut(file, []byte(beginNames))
	var after []byte
	if had {
		_, after, _ = bytes.Cut(rest, []byte(endNames))
	} else {
		before = append(bytes.TrimRight(before, "\n"), "\n\n"...)
	}
	taken := map[string]bool{}
	for line := range strings.Lines(string(before) + string(after)) {
		line, _, _ = strings.Cut(line, "#")
		for i, name := range strings.Fields(line) {
			if i > 0 {
				taken[name] = true
			}
		}
	}
	names := s.without(taken)
	if names == "" && !had {
		return file
	}
	return slices.Concat(before, []byte(beginNames), []byte(names), []byte(endNames), after)
}
