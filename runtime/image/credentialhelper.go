package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

const (
	helperTimeout = 10 * time.Second
	// tokenUser is the user name with which a helper marks an identity token.
	tokenUser = "<token>"
)

// ask asks a credential helper for the credential of a registry. One that has none says so with
// an exit code, which is not an error.
func (f *file) ask(ctx context.Context, name, host string) (engine.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	out, err := run(exec.CommandContext(ctx, "docker-credential-"+name, "get"), []byte(host))
	text := strings.TrimSpace(string(out))
	switch {
	case err != nil && strings.Contains(text, "credentials not found"):
		return engine.Credential{}, nil
	case errors.Is(err, exec.ErrNotFound):
		return engine.Credential{}, failure.Permanentf("credential helper %q of %s: docker-credential-%s is not in PATH: install it, or remove it from the file",
			name, f.path, name)
	case err != nil:
		return engine.Credential{}, fmt.Errorf("asking credential helper %q of %s: %w: %s", name, f.path, err, text)
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out, &got); err != nil {
		return engine.Credential{}, fmt.Errorf("asking credential helper %q of %s: %w", name, f.path, err)
	}
	if got.Username == tokenUser {
		got.Username = ""
	}
	return engine.Credential{User: got.Username, Password: got.Secret}, nil
}

// run runs a command with the input and returns its output. An error has what the command has
// written to standard error.
func run(cmd *exec.Cmd, input []byte) ([]byte, error) {
	var out, message bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &message
	cmd.WaitDelay = time.Second // for processes that it has started and left
	err := cmd.Run()
	if text := strings.TrimSpace(message.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return out.Bytes(), err
}
