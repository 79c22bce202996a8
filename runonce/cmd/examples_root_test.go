package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// TestExampleCI: jobs of all CI examples, at the same time on one machine, run their pods, keep
// the reports and logs, end with the exit code of the tests, and remove what they have started, but no
// pod of another job.
func TestExampleCI(t *testing.T) {
	roottest.Require(t)
	other := newMachine(t, boxImages(t))
	other.once(t, "run", "--node", nodeFile(), filepath.Join(storyDir(t, "happy"), "manifests"))
	bin := ciPrograms(t, ciImages(t))
	const substitute = "--substitute\n--timeout=20m\n--exit-code-from=test"
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
			{"jenkins", jenkinsJob(t), "good", 0, "test      Succeeded"},
			{"woodpecker", woodpeckerJob(t), "good", 0, "test      Succeeded"},
			{"action", actionJob(t, map[string]string{"version": "", "flags": substitute}), "good", 0, "test      Succeeded"},
			{"component", componentJob(t, map[string]string{"path": "deploy/test", "flags": strings.ReplaceAll(substitute, "\n", " ")}), "good", 0, "test      Succeeded"},
			{"failing", githubJob(t), "bad", 7, "::error file=deploy/test/test.yaml,line=3,title=default/test%3A Failed"},
			{"failing action", actionJob(t, map[string]string{"version": "", "flags": substitute}), "bad", 7, "::error file=deploy/test/test.yaml,line=3,title=default/test%3A Failed"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorker(t, i, c.job, c.sha, bin)
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

// TestActionKeeps: the pods that the action keeps are there for later steps, until they are removed.
func TestActionKeeps(t *testing.T) {
	roottest.Require(t)
	job := actionJob(t, map[string]string{"version": "", "keep": "true", "flags": "--substitute\n--until=running"})
	down := downJob(t)
	job.scripts = append(job.scripts, "sudo -E runonce ps")
	job.after = []string{"export GITHUB_ACTION_PATH=" + down.variables["GITHUB_ACTION_PATH"] + "\n" + down.scripts[0], `test -z "$RUNONCE_ROOT"`}
	w := newWorker(t, 9, job, "good", ciPrograms(t, ciImages(t)))
	if code, out := w.run(t); code != 0 || strings.Count(out, "service") < 2 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	w.check(t)
}

// ciImages writes the images of the examples: programs that serve, and one that looks whether they do, or
// that fails.
func ciImages(t *testing.T) string {
	t.Helper()
	image := func(name, ref string, command ...string) testimages.Image {
		return testimages.Image{Name: name, Ref: ref, Program: "box", Config: imagespec.ImageConfig{Entrypoint: append([]string{"/bin/box"}, command...)}}
	}
	return writeImages(t,
		image("database", "docker.io/library/postgres:17", "web", "-addr", ":5432", "-dir", "/"),
		image("service", "registry.example/service:good", "web", "-dir", "/"),
		image("test", "registry.example/service-tests:good", "get", "-again", "-timeout", "10m"),
		image("same", "registry.example/service:bad", "web", "-dir", "/"),
		image("failing", "registry.example/service-tests:bad", "exit", "7"))
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
		"runonce": "RUNONCE_IMAGES_DIR=" + images + " " + asProgram + "=1 exec " + self + ` "$@"`,
		"sudo":    `[ "$1" = -E ] && shift` + "\n" + `exec "$@"`,
	} {
		exectest.Write(t, filepath.Join(bin, name), "#!/bin/sh\n"+text+"\n")
	}
	return bin
}

// ciWorker runs a job as its CI system does.
type ciWorker struct {
	job           ciJob
	id            int // of the job, with four digits
	sha, bin, dir string
}

// newWorker returns one of several, which is for a job that gets the images of a commit.
func newWorker(t *testing.T, n int, job ciJob, sha, bin string) ciWorker {
	t.Helper()
	return ciWorker{job: job, id: 1000 + (os.Getpid()*10+n)%4000, sha: sha, bin: bin, dir: t.TempDir()}
}

// githubEnv is the variable that names the file with variables for later steps.
const githubEnv = "GITHUB_ENV"

// exported returns the variables that earlier steps have set for later ones.
func (w ciWorker) exported(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, githubEnv))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// run returns the exit code of the job, and what it has printed.
func (w ciWorker) run(t *testing.T) (code int, output string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(w.dir, "deploy", "test"), os.DirFS(examples+"ci/pods")); err != nil {
		t.Fatal(err)
	}
	environ := append(os.Environ(), "PATH="+w.bin+":"+os.Getenv("PATH"), "RUNNER_TEMP="+w.dir, "GITHUB_WORKSPACE="+w.dir,
		"CI_COMMIT_SHA="+w.sha, "SERVICE_IMAGE=registry.example/service:"+w.sha, "TEST_IMAGE=registry.example/service-tests:"+w.sha,
		fmt.Sprint("DATABASE_PORT=", 20_000+2*w.id), fmt.Sprint("SERVICE_PORT=", 20_001+2*w.id))
	for _, name := range []string{"GITHUB_RUN_ID", "CI_JOB_ID", "CI_PIPELINE_NUMBER", "EXECUTOR_NUMBER"} {
		environ = append(environ, fmt.Sprint(name, "=", w.id))
	}
	for _, name := range []string{githubEnv, "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"} {
		environ = append(environ, name+"="+filepath.Join(w.dir, name))
	}
	id := strconv.Itoa(w.id)
	known := strings.NewReplacer(
		"${{ github.sha }}", w.sha, "${{ github.run_id }}", id, "${{ github.run_attempt }}", "1", "$CI_COMMIT_SHA", w.sha,
		"${GIT_COMMIT}", w.sha, "${EXECUTOR_NUMBER}", id, "$CI_JOB_ID", id,
	)
	for name, value := range w.job.variables {
		environ = append(environ, name+"="+known.Replace(value))
	}
	shell := func(script string) error {
		p := exec.CommandContext(t.Context(), "bash", "-c", script)
		p.Dir, p.Env = w.dir, append(slices.Clip(environ), w.exported(t)...)
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
	for file, want := range map[string]int{"report.xml": 1, "logs/*": 3} {
		kept, err := filepath.Glob(filepath.Join(w.dir, file))
		of, aerr := filepath.Glob(filepath.Join(w.dir, "runonce-*", file))
		if kept = append(kept, of...); err != nil || aerr != nil || len(kept) != want {
			t.Errorf("%s: %v, %v, %v", file, kept, err, aerr)
		} else if want == 1 && strings.Count(read(t, kept[0]), "<testcase") != 3 {
			t.Errorf("report:\n%s", read(t, kept[0]))
		}
	}
	name := strconv.Itoa(w.id) + "*"
	if all := w.exported(t); len(all) > 0 {
		name = filepath.Base(all[0])
	}
	for _, dir := range []string{"/var/lib/runonce-ci/", "/run/runonce-ci/", "/var/log/runonce-ci/"} {
		if left, err := filepath.Glob(dir + name); err != nil || len(left) > 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
	nothingLeft(t, "runonce-ci/"+strings.TrimSuffix(name, "*"))
}
