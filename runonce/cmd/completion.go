package cmd

import (
	"embed"
	"fmt"

	"github.com/urfave/cli/v2"
)

// completionScripts has a script for each shell.
//
//go:embed completion.bash completion.zsh completion.fish
var completionScripts embed.FS

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell completion script", ArgsUsage: "bash|zsh|fish", Action: p.completion,
		Description: "bash: source <(runonce completion bash)\n" +
			"zsh: source <(runonce completion zsh)\n" +
			"fish: runonce completion fish | source",
	}
}

func (p *program) completion(c *cli.Context) error {
	script, err := completionScripts.ReadFile("completion." + c.Args().First())
	if err != nil {
		return usagef("completion needs a shell: bash, zsh or fish")
	}
	if _, err := p.io.Stdout.Write(script); err != nil {
		return fmt.Errorf("writing completions: %w", err)
	}
	return nil
}
