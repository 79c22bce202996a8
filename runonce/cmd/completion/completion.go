// Package completion holds the scripts that make shells complete the command line.
package completion

import _ "embed"

// Bash is the script for bash.
//
//go:embed completion.bash
var Bash string

// Zsh is the script for zsh.
//
//go:embed completion.zsh
var Zsh string
