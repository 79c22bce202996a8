package cmd_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// TestExampleCI: jobs of both CI examples, at the same time on one machine, run their pods, keep
// the reports and logs, end with the exit code of the tests, and remove what they have started, but no
// pod of another job.
func TestExampleCI(t *testing.T) {
	roottest.Require(t)
	other := newMachine(t, boxImages(t))
	other.once(t, "run", "--node", nodeFile(), filepath.Join(storyDir(t, "happy"), "manifests"))
	bin := ciPrograms(t, ciImages(t))
	t.Run("jobs", func(t *testing.T) {
		for i, c := range []struct {
			name string
			job  ciJob
			sha  string
			want int
			text string
		}{
			{"github", githubJob(t), "good", 0, "test      Succeeded"},
			{"gitlab", gitlabJob(t), "good", 0, "test      Succeeded"},
			{"failing", githubJob(t), "bad", 7, "::error file=deploy/test/test.yaml,line=3,title=default/test%3A Failed"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := ciWorker{job: c.job, id: strconv.Itoa(os.Getpid()*10 + i), sha: c.sha, bin: bin, dir: t.TempDir()}
				code, out := w.run(t)
				if code != c.want || !strings.Contains(out, c.text) {
					t.Errorf("exit code %d, want %d, and %q:\n%s", code, c.want, c.text, out)
				}
				w.check(t)
			})
		}
	})
	if ps := other.once(t, "ps"); !strings.Contains(ps, "Running") {
		t.Errorf("pods of the other job:\n%s", ps)
	}
}

// ciImages writes the images of the examples: programs that serve, and one that looks whether they do, or
// that fails.
func ciImages(t *testing.T) string {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	box, err := testimages.Program(t.Context(), root, "box")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, image := range map[string]struct {
		ref     string
		command []string
	}{
		"database": {"docker.io/library/postgres:17", []string{"/bin/box", "web", "-addr", ":5432", "-dir", "/"}},
		"service":  {"registry.example/service:good", []string{"/bin/box", "web", "-dir", "/"}},
		"test":     {"registry.example/service-tests:good", []string{"/bin/box", "get", "-again", "-timeout", "10m"}},
		"same":     {"registry.example/service:bad", []string{"/bin/box", "web", "-dir", "/"}},
		"failing":  {"registry.example/service-tests:bad", []string{"/bin/box", "exit", "7"}},
	} {
		var archive bytes.Buffer
		own := testimages.Image{Ref: image.ref, Program: "box", Config: imagespec.ImageConfig{Entrypoint: image.command}}
		if err := ociimage.Build(&archive, own.Contents(box)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".tar"), archive.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ciPrograms returns a directory with the programs that the jobs call: this one, with the images, and
// a sudo that leaves everything as it is.
func ciPrograms(t *testing.T, images string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, text := range map[string]string{
		"runonce": `[ "$1" = run ] && set -- "$@" --images-dir ` + images + "\n" + asProgram + "=1 exec " + self + ` "$@"`,
		"sudo":    `[ "$1" = -E ] && shift` + "\n" + `exec "$@"`,
	} {
		exectest.Write(t, filepath.Join(bin, name), "#!/bin/sh\n"+text+"\n")
	}
	return bin
}

// ciWorker runs a job as its CI system does.
type ciWorker struct {
	job               ciJob
	id, sha, bin, dir string
}

// run returns the exit code of the job, and what it has printed.
func (w ciWorker) run(t *testing.T) (code int, output string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(w.dir, "deploy", "test"), os.DirFS(examples+"ci/pods")); err != nil {
		t.Fatal(err)
	}
	environ := append(os.Environ(), "PATH="+w.bin+":"+os.Getenv("PATH"), "GITHUB_WORKSPACE="+w.dir, "GITHUB_RUN_ID="+w.id, "CI_JOB_ID="+w.id)
	known := strings.NewReplacer(
		"${{ github.sha }}", w.sha, "${{ github.run_id }}", w.id, "${{ github.run_attempt }}", "1", "$CI_COMMIT_SHA", w.sha,
	)
	for name, value := range w.job.variables {
		environ = append(environ, name+"="+known.Replace(value))
	}
	shell := func(script string) error {
		p := exec.CommandContext(t.Context(), "bash", "-c", script)
		p.Dir, p.Env = w.dir, environ
		out, err := p.CombinedOutput()
		output += string(out)
		return err
	}
	for _, script := range w.job.scripts {
		var exit *exec.ExitError
		if err := shell(script); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Error(err)
		}
	}
	for _, script := range w.job.after {
		if err := shell(script); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	}
	return code, output
}

// check looks at what the job keeps, and that nothing else is left.
func (w ciWorker) check(t *testing.T) {
	t.Helper()
	if report := read(t, filepath.Join(w.dir, "report.xml")); strings.Count(report, "<testcase") != 3 {
		t.Errorf("report:\n%s", report)
	}
	logs, err := filepath.Glob(filepath.Join(w.dir, "logs", "*"))
	if err != nil || len(logs) != 3 {
		t.Errorf("logs %v: %v", logs, err)
	}
	for _, dir := range []string{"/var/lib/runonce-ci/", "/run/runonce-ci/", "/var/log/runonce-ci/"} {
		if left, err := filepath.Glob(dir + w.id + "*"); err != nil || len(left) > 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
	nothingLeft(t, "runonce-ci/"+w.id)
}
