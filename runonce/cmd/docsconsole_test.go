package cmd_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// consoleDir has what the blocks marked "console" of the documents need to be run, one file NAME.txtar for each, where NAME
// is that of the document and the number of the block in it. Its files, and those of the document whose relative paths are
// before their blocks, are in the directory in which the commands run. The lines before the files are:
//
//	port N          port N is replaced, in the files and the block, by one that is free
//	needs PROGRAM   the block calls a program that this machine may lack
//	before COMMAND  a command that comes before those of the block
//
// The images are those of images.yaml.
const consoleDir = "../../testdata/docs/"

// demoDocument has the output of "make demo", which compares it with its own.
const demoDocument = "docs/demo.md"

// consoleBlock is a block that is marked "console", and the document that it is in.
type consoleBlock struct{ text, document string }

// consoleBlocks returns all of them by their names.
func consoleBlocks(t *testing.T) map[string]consoleBlock {
	t.Helper()
	all := map[string]consoleBlock{}
	for path, text := range documents(t) {
		if path == demoDocument {
			continue
		}
		n := 0
		for _, b := range blocks(text) {
			if b.language == "console" {
				n++
				name := strings.TrimPrefix(strings.TrimSuffix(path, ".md"), "docs/")
				all[fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), n)] = consoleBlock{b.text, text}
			}
		}
	}
	return all
}

// TestConsoleBlocksAreRun: TestConsoleBlocks can run every block that is marked "console", and has files for no others.
func TestConsoleBlocksAreRun(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(consoleDir + "*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		have = append(have, strings.TrimSuffix(filepath.Base(f), ".txtar"))
	}
	if want := slices.Sorted(maps.Keys(consoleBlocks(t))); !slices.Equal(have, want) {
		t.Errorf("%s has files for %q, want %q", consoleDir, have, want)
	}
}

// shownCommand is a command in a block, with the lines that it prints. It succeeds unless the next one shows its exit code.
type shownCommand struct {
	command string
	output  []string
	fails   bool
}

const showCode = "echo $?"

// shownCommands reads a block.
func shownCommands(t *testing.T, block string) []shownCommand {
	t.Helper()
	var all []shownCommand
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "# ") {
			all = append(all, shownCommand{command: line[2:]})
		} else if len(all) == 0 {
			t.Fatalf("a block does not begin with a command:\n%s", block)
		} else {
			last := &all[len(all)-1]
			last.output = append(last.output, line)
		}
	}
	for i := range all[1:] {
		all[i].fails = all[i+1].command == showCode
	}
	return all
}
