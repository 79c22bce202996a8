package cmd

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/completion"
	"github.com/runonce/runonce/runonce/exitcode"
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: "bash|zsh|fish", Action: p.completion,
		Description: "For bash: source <(runonce completion bash)",
	}
}

func (p *program) completion(c *cli.Context) error {
	script := ""
	switch shell := c.Args().First(); shell {
	case "bash":
		script = completion.Bash
	case "zsh":
		script = completion.Zsh
	case "fish":
		var err error
		if script, err = c.App.ToFishCompletion(); err != nil {
			return fmt.Errorf("writing completions: %w", err)
		}
	default:
		return exitcode.Usagef("completion takes a shell: bash, zsh or fish")
	}
	if _, err := fmt.Fprint(p.io.Stdout, script); err != nil {
		return fmt.Errorf("writing completions: %w", err)
	}
	return nil
}
