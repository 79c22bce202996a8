package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSubcommands(t *testing.T) {
	t.Parallel()
	help := "NAME:\n   x\n\nCOMMANDS:\n   run      start it\n   ps, list  show them\n   help, h  help\n\nOPTIONS:\n   --a  b\n"
	if diff := cmp.Diff([]string{"run", "ps"}, subcommands(help)); diff != "" {
		t.Error(diff)
	}
	if got := subcommands("NAME:\n   x\n"); got != nil {
		t.Errorf("got %q without commands", got)
	}
}
