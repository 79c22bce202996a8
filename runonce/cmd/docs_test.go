package cmd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/runonce/runonce/runonce/cmd"
)

const repository = "../../"

// documents returns the text of all documents by their paths in the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != repository && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "bin" || e.Name() == "dist"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			all[strings.TrimPrefix(path, repository)] = read(t, path)
		}
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d documents: %v", len(all), err)
	}
	return all
}

// codeBlock is one of code in a document.
type codeBlock struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

func blocks(text string) []codeBlock {
	var all []codeBlock
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, codeBlock{m[1], m[2]})
	}
	return all
}

var (
	command = regexp.MustCompile(`^(?:\$ )?(?:sudo (?:-E )?)?(?:bin/)?runonce (.*)$`)
	// shellRest is what follows a command in a line: another one, a redirection, or a comment.
	shellRest = regexp.MustCompile(`\s(?:\||&&|;|\d?>|<|#\s).*$`)
)

// commands returns the arguments of all commands of the program in blocks of a shell.
func commands(text string) []string {
	var all []string
	for _, b := range blocks(text) {
		if b.language != "" && b.language != "sh" && b.language != "bash" && b.language != "console" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			if m := command.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				all = append(all, shellRest.ReplaceAllString(" "+m[1], ""))
			}
		}
	}
	return all
}

// wordsOf splits the arguments of a command, which may be quoted.
func wordsOf(line string) []string {
	var all []string
	var word strings.Builder
	var quote rune
	inside := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inside = r, true
		case quote == 0 && unicode.IsSpace(r):
			if inside {
				all = append(all, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if inside {
		all = append(all, word.String())
	}
	return all
}

// TestDocumentedCommands: every command in a document exists, with flags that exist and take such values.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	n := 0
	for path, text := range documents(t) {
		if path == "docs/commands.md" { // which the program has written
			continue
		}
		for _, line := range commands(text) {
			args := wordsOf(line)
			for i, arg := range args {
				if arg == "--" {
					args = args[:i]
					break
				}
			}
			n++
			if got := invokeWith(t, noEngine(t), append(args, "--help")...); got.code != 0 {
				t.Errorf("%s: runonce%s: %s", path, line, got.stderr)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d commands were found", n)
	}
}

// wholeObject matches whole objects that runonce reads.
var wholeObject = regexp.MustCompile(`^apiVersion: (v1|apps/v1|batch/v1)\n`)

// TestDocumentedManifests: every whole object in a document is valid.
func TestDocumentedManifests(t *testing.T) {
	t.Parallel()
	n := 0
	for path, text := range documents(t) {
		for _, b := range blocks(text) {
			if b.language != "yaml" || !wholeObject.MatchString(b.text) {
				continue
			}
			n++
			file := filepath.Join(t.TempDir(), "pod.yaml")
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := invokeWith(t, cmd.IO{}, "validate", file); got.code != 0 {
				t.Errorf("%s: %s%s", path, got.stdout, got.stderr)
			}
		}
	}
	if n < 3 {
		t.Errorf("only %d manifests were found", n)
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s#]*)#([^)\s]+)\)`)
)

// anchorsOf returns those that GitHub gives the headings of a document.
func anchorsOf(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, m[1])
		all[title] = true
	}
	return all
}

// TestDocumentedLinks: every link to a heading leads to one.
func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	all := documents(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if other, ok := all[to]; ok && !anchorsOf(other)[m[2]] {
				t.Errorf("%s: %s has no heading %q", path, to, m[2])
			}
		}
	}
}
