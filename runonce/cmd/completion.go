package cmd

import (
	_ "embed" // the scripts
	"fmt"

	"github.com/urfave/cli/v2"
)

// The completion scripts of shells.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.zsh
	zshCompletion string
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell completion script", ArgsUsage: "bash|zsh|fish", Action: p.completion,
		Description: "For bash: source <(runonce completion bash)",
	}
}

func (p *program) completion(c *cli.Context) error {
	script := ""
	switch shell := c.Args().First(); shell {
	case "bash":
		script = bashCompletion
	case "zsh":
		script = zshCompletion
	case "fish":
		var err error
		if script, err = c.App.ToFishCompletion(); err != nil {
			return fmt.Errorf("writing completions: %w", err)
		}
	default:
		return usagef("completion needs a shell: bash, zsh or fish")
	}
	if _, err := fmt.Fprint(p.io.Stdout, script); err != nil {
		return fmt.Errorf("writing completions: %w", err)
	}
	return nil
}
