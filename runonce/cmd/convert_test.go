package cmd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runonce/cmd"
)

// TestConvert: the converter beside the program comes before that in PATH, and gets the arguments as they are.
func TestConvert(t *testing.T) {
	dir := t.TempDir()
	beside, inPath := filepath.Join(dir, "beside"), filepath.Join(dir, "path")
	t.Setenv("PATH", inPath+":/bin:/usr/bin")
	convert := func(program, stdin string, args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = cmd.Main(context.Background(), append([]string{"runonce", "convert"}, args...), cmd.IO{
			Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Program: program,
			Environ: func() []string { return []string{"FROM=environment"} },
		})
		return code, out.String(), errs.String()
	}
	code, _, stderr := convert(filepath.Join(beside, "runonce"), "")
	want := "runonce: runonce-compose is neither beside runonce nor in PATH: install it from the archive of the release, or with " +
		"\"go install github.com/runonce/runonce/manifests/compose/cmd/runonce-compose@latest\"\n"
	if code != 4 || stderr != want {
		t.Errorf("without the converter: %d: %q", code, stderr)
	}
	if code, stdout, stderr := convert("", "", "--help"); code != 0 || !strings.Contains(stdout, "runonce convert [flags] [FILE...]") || stderr != "" {
		t.Errorf("help: %d: %q %q", code, stdout, stderr)
	}
	exectest.Write(t, filepath.Join(inPath, "runonce-compose"), "#!/bin/sh\necho path; exit 3\n")
	for _, program := range []string{"", filepath.Join(beside, "runonce")} {
		if code, stdout, stderr := convert(program, ""); code != 3 || stdout != "path\n" || stderr != "" {
			t.Errorf("in PATH: %d: %q %q", code, stdout, stderr)
		}
	}
	exectest.Write(t, filepath.Join(beside, "runonce-compose"), "#!/bin/sh\nread line; echo \"$FROM $line $*\"; echo problem >&2\n")
	code, stdout, stderr := convert(filepath.Join(beside, "runonce"), "input\n", "--strict", "-o", "json", "--", "--root")
	if code != 0 || stdout != "environment input convert --strict -o json -- --root\n" || stderr != "problem\n" {
		t.Errorf("%d: %q %q", code, stdout, stderr)
	}
	exectest.Write(t, filepath.Join(beside, "runonce-compose"), "#!/bin/sh\nkill -9 $$\n")
	if code, _, stderr := convert(filepath.Join(beside, "runonce"), ""); code != 1 || !strings.HasSuffix(stderr, "runonce-compose: signal: killed\n") {
		t.Errorf("killed: %d: %q", code, stderr)
	}
}

// converterDir returns the directory of the program that "convert" runs.
func converterDir(t *testing.T) string {
	t.Helper()
	dir, err := builtConverter()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// builtConverter builds that program once, in a directory that TestMain removes.
var builtConverter = sync.OnceValues(func() (string, error) {
	var err error
	if converterMade, err = os.MkdirTemp("", "runonce-converter-"); err != nil {
		return "", err
	}
	build := exec.CommandContext(testContext(), "go", "build", "-C", "../../manifests/compose", "-o", converterMade, "./cmd/runonce-compose")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the converter: %w: %s", err, out)
	}
	return converterMade, nil
})

// converterMade is the directory, once it has been made.
var converterMade string
