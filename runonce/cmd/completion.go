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
	//go:embed completion.fish
	fishCompletion string
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell completion script", ArgsUsage: "bash|zsh|fish", Action: p.completion,
		Description: "bash: source <(runonce completion bash)\n" +
			"zsh: source <(runonce completion zsh)\n" +
			"fish: runonce completion fish | source",
	}
}

func (p *program) completion(c *cli.Context) error {
	script, ok := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Args().First()]
	if !ok {
		return usagef("completion needs a shell: bash, zsh or fish")
	}
	if _, err := fmt.Fprint(p.io.Stdout, script); err != nil {
		return fmt.Errorf("writing completions: %w", err)
	}
	return nil
}
