package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
)

// retryTimeout is how long a step may be retried.
const retryTimeout = 2 * time.Minute

// session runs the steps in the demo's own directories.
type session struct {
	program string
	dirs    []string // flag, directory, flag, directory, ...
	out     *transcript
}

func newSession(out *transcript) (*session, error) {
	s := &session{program: "bin/runonce", out: out, dirs: []string{
		"--root", "/var/lib/runonce-demo",
		"--state", "/run/runonce-demo",
		"--log-dir", "/var/log/runonce-demo",
	}}
	if _, err := os.Stat(s.program); err != nil {
		return nil, fmt.Errorf("looking for the program: %w", err)
	}
	return s, nil
}

// play runs a step, prints it as it would look in a terminal, and checks it.
func (s *session) play(ctx context.Context, st step) error {
	s.out.printf("# %s\n$ %s\n", st.title, st.command())
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var code int
	var out string
	var err error
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		code, out, err = s.run(ctx, st)
		err = errors.Join(err, st.check(code, out))
		if err == nil || !st.retry || time.Since(start) > retryTimeout || ctx.Err() != nil {
			break
		}
	}
	s.out.printf("%s", shorten(out))
	if st.want != 0 {
		s.out.printf("$ echo $?\n%d\n", code)
	}
	s.out.printf("\n")
	if err != nil {
		return fmt.Errorf("%s: %w", st.command(), err)
	}
	return nil
}

func (s *session) run(ctx context.Context, st step) (int, string, error) {
	if st.get != "" {
		out, err := fetch(ctx, st.get)
		return 0, out, err
	}
	var out, messages bytes.Buffer
	args := slices.Concat(st.args[:1], s.dirs, st.args[1:])
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Stdout, cmd.Stderr = &out, &messages
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	if out.Len() == 0 {
		out = messages // without a result it says why
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), out.String(), nil
	}
	return 0, out.String(), err
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return string(b), nil
}

// shorten keeps a long log from filling the screen.
func shorten(out string) string {
	const most = 12
	lines := strings.SplitAfter(out, "\n")
	if len(lines) <= most+1 {
		return out
	}
	return strings.Join(lines[:most], "") + "...\n"
}

// close removes the pods of an interrupted or failed demo, and the demo's directories. A
// directory in which something is still mounted is an error and is kept.
func (s *session) close(ctx context.Context) error {
	code, _, err := s.run(ctx, step{args: []string{"down", "--all"}})
	if err == nil && code != 0 {
		err = fmt.Errorf("down --all: exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	for i := 1; i < len(s.dirs); i += 2 {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(s.dirs[i]))
		if err != nil {
			return fmt.Errorf("cleaning up: %w", err)
		}
		if len(mounts) > 0 {
			return fmt.Errorf("cleaning up: %s is still mounted", mounts[0].Mountpoint)
		}
		if err := os.RemoveAll(s.dirs[i]); err != nil {
			return fmt.Errorf("cleaning up: %w", err)
		}
	}
	return nil
}
