package cmdline

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// Find returns the command that names lead to, the program itself without any.
func Find(program *cli.Command, names []string) (*cli.Command, error) {
	c := program
	for _, name := range names {
		sub := findCommand(c.Subcommands, name)
		if sub == nil {
			if hint, _ := hintFor(program, names); c == program && hint != "" {
				return nil, fmt.Errorf("unknown command %q: %s", name, hint)
			}
			return nil, fmt.Errorf("unknown command %q; see %q", strings.Join(names, " "), c.HelpName+" --help")
		}
		c = sub
	}
	return c, nil
}

// Help writes the help of a command.
func Help(w io.Writer, c *cli.Command) error {
	t := tabwriter.NewWriter(w, 1, 8, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "NAME:\n   %s - %s\n\nUSAGE:\n   %s\n", c.HelpName, c.Usage, indented(usage(c)))
	if c.Description != "" {
		_, _ = fmt.Fprintf(t, "\nDESCRIPTION:\n   %s\n", indented(c.Description))
	}
	if len(c.Subcommands) > 0 {
		_, _ = fmt.Fprintln(t, "\nCOMMANDS:")
		for _, sub := range c.Subcommands {
			_, _ = fmt.Fprintf(t, "   %s\t%s\n", sub.Name, sub.Usage)
		}
	}
	_, _ = fmt.Fprintln(t, "\nOPTIONS:")
	categories := c.VisibleFlagCategories()
	for _, category := range categories {
		if category.Name() != "" {
			_, _ = fmt.Fprintf(t, "\n   %s\n\n", category.Name())
		}
		for _, f := range category.Flags() {
			_, _ = fmt.Fprintf(t, "   %s\n", f)
		}
	}
	if len(categories) == 0 { // no flag has one
		for _, f := range c.VisibleFlags() {
			_, _ = fmt.Fprintf(t, "   %s\n", f)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the help: %w", err)
	}
	return nil
}

// usage returns how a command is called.
func usage(c *cli.Command) string {
	if c.UsageText == "" && len(c.Subcommands) > 0 {
		return c.HelpName + " COMMAND [flags] [arguments]"
	}
	return cmp.Or(c.UsageText, strings.TrimSpace(c.HelpName+" [flags] "+c.ArgsUsage))
}

// indented returns a text of several lines with all but the first indented.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n   ") }
