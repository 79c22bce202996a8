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
		Name: "completion", Usage: "print a shell completion script", ArgsUsage: "bash|zsh|fish", Action: func(c *cli.Context) error { return p.completion(c.Args().First()) },
		Description: "bash: source <(runonce completion bash)\n" +
			"zsh: source <(runonce completion zsh)\n" +
			"fish: runonce completion fish | source",
	}
}

// completion prints the script for a shell.
func (p *program) completion(shell string) error {
	script, err := completionScripts.ReadFile("completion." + shell)
	if err != nil {
		return usagef("completion needs a shell: bash, zsh or fish")
	}
	if _, err := p.io.Stdout.Write(script); err != nil {
		return fmt.Errorf("writing completions: %w", err)
	}
	return nil
}
