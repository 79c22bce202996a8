package cmd

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runtime/image"
)

// The categories of flags in the help.
const (
	categoryEngine  = "Engine"
	categoryInput   = "Input"
	categoryRun     = "Run"
	categoryReport  = "Report"
	categoryNode    = "Node"
	categoryNetwork = "Network"
	categoryCluster = "Cluster"
	categoryImages  = "Images"
	categoryServe   = "Serve"

	categoryShutdown = "Shutdown"
)

// retryJitter keeps many machines from asking a registry again at the same time.
const retryJitter = 0.1

// logFlags are those of every command that works: they select the configuration and the log messages.
type logFlags struct{ config, logFormat, logLevel string }

func (f *logFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: cmdline.ConfigFlag, Destination: &f.config, Usage: "read only the configuration `FILE`", DefaultText: "those in /etc/runonce"},
		textFlag(&f.logFormat, "", "`FORMAT` of log messages: text, json or journal", "log-format", "text"),
		textFlag(&f.logLevel, "", "lowest `LEVEL` to log: debug, info, warn or error", "log-level", "warn"),
	}
}

// engineFlags select the engine and its directories.
type engineFlags struct{ address, root, state, logDir, namespace string }

func (f *engineFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "address", Destination: &f.address, Category: categoryEngine, Usage: "use containerd at `SOCKET`", DefaultText: "$CONTAINERD_ADDRESS, else embedded"},
		textFlag(&f.root, categoryEngine, "keep persistent data in `DIR`", "root", backend.DefaultRoot),
		textFlag(&f.state, categoryEngine, "keep data that a reboot may delete in `DIR`", "state", "/run/runonce"),
		textFlag(&f.logDir, categoryEngine, "write container logs to `DIR`", "log-dir", "/var/log/pods"),
		textFlag(&f.namespace, categoryEngine, "containerd `NAMESPACE`, not that of pods", "namespace", "runonce"),
	}
}

// check makes the directories absolute.
func (f *engineFlags) check() error {
	for _, d := range []struct {
		flag string
		dir  *string
	}{{"root", &f.root}, {"state", &f.state}, {"log-dir", &f.logDir}} {
		if err := resolveDir(d.flag, d.dir); err != nil {
			return err
		}
	}
	if f.root == f.state {
		return usagef("--root and --state must be different directories")
	}
	return nil
}

// engine returns how the engine is opened by a command that starts nothing.
func (f *engineFlags) engine(c *console) backend.Options {
	o := backend.Options{PodsRoot: f.root, LogDir: f.logDir, ClaimsDir: filepath.Join(f.root, "claims")}
	o.Root, o.State, o.Namespace, o.Address = f.root, f.state, f.namespace, cmp.Or(f.address, c.io.Getenv("CONTAINERD_ADDRESS"))
	o.Log, o.Progress, o.StartsNothing = c.log, c.display.OnTransfer(), true
	if c.io.Program != "" {
		o.Libexec = filepath.Join(filepath.Dir(c.io.Program), "../libexec/runonce")
	}
	return o
}

// resolveDir makes the directory of a flag absolute. It refuses those that OCI runtimes and containerd
// cannot handle.
func resolveDir(flag string, dir *string) (err error) {
	switch {
	case *dir == "":
		return usagef("--%s %q: must be a directory", flag, *dir)
	case !utf8.ValidString(*dir):
		return usagef("--%s %q: must be valid UTF-8", flag, *dir)
	case (flag == "root" || flag == "state") && strings.Contains(*dir, ","):
		return usagef("--%s %q: must not contain a comma, which separates the options of a mount", flag, *dir)
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return usagef("--%s: %w", flag, err)
	}
	return nil
}

// containerFlag chooses a container of a pod.
func containerFlag(name *string) cli.Flag {
	return &cli.StringFlag{Name: "container", Aliases: []string{"c"}, Destination: name, Usage: "`NAME` of the container", DefaultText: "the one that kubectl chooses"}
}

// retryFlags say how often something is tried.
type retryFlags struct{ backoff runonce.Backoff }

func (f *retryFlags) flags() []cli.Flag {
	b := runonce.DefaultBackoff()
	f.backoff.Jitter = retryJitter
	return []cli.Flag{
		durationFlag(&f.backoff.Delay, categoryRun, "`DURATION` before the first retry", "retry-delay", b.Delay),
		&cli.Float64Flag{Name: "retry-factor", Destination: &f.backoff.Factor, Category: categoryRun, Value: b.Factor, Usage: "multiply each further delay by `FACTOR`"},
		numberFlag(&f.backoff.Retries, categoryRun, "retry up to `N` times after errors", "max-retries", b.Retries),
	}
}

func (f *retryFlags) check() error {
	if err := f.backoff.Validate(); err != nil {
		return badInput(err)
	}
	return nil
}

func existingDir(flag, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usagef("--%s %q: must be an existing directory", flag, dir)
	}
	return nil
}

// imageFlags say where the images of pods come from.
type imageFlags struct {
	fetchFlags
	dirs    list
	pull    string
	collect image.Thresholds
}

func (f *imageFlags) flags() []cli.Flag {
	d := image.DefaultThresholds()
	return append(f.fetchFlags.flags(),
		pathsFlag(&f.dirs, categoryImages, "import from `DIR`", "images-dir", "ROOT/images"),
		textFlag(&f.pull, categoryImages, "`WHEN` to pull: missing, always, never or newer", "pull", ""),
		numberFlag(&f.collect.High, categoryImages, "remove unused images at `PERCENT` used", "image-gc-high-threshold", d.High),
		numberFlag(&f.collect.Low, categoryImages, "and stop at `PERCENT`", "image-gc-low-threshold", d.Low),
		durationFlag(&f.collect.MinAge, categoryImages, "keep images at least `DURATION`", "image-gc-min-age", d.MinAge),
	)
}

func (f *imageFlags) check() error {
	if f.pull != "" { // else as each pull policy says
		if err := checkOneOf("pull", image.Mode(f.pull), image.Missing, image.Always, image.Never, image.Newer); err != nil {
			return err
		}
	}
	if err := f.collect.Validate(); err != nil {
		return usagef("--image-gc-high-threshold, --image-gc-low-threshold and --image-gc-min-age: %w", err)
	}
	return f.fetchFlags.check()
}

// imagesDirs returns the directory in the root, if it has something, and those of --images-dir, whose
// images replace others of the same name.
func (f *imageFlags) imagesDirs(root string) []string {
	own := filepath.Join(root, "images")
	entries, err := os.ReadDir(own)
	visible := func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") }
	if err == nil && slices.ContainsFunc(entries, visible) && !slices.Contains(f.dirs.values, own) {
		return append([]string{own}, f.dirs.values...)
	}
	return f.dirs.values
}

// outputFlags select one of the formats, of which the first is the default.
type outputFlags struct {
	output  string
	formats []string
}

func newOutputFlags(formats ...string) outputFlags { return outputFlags{formats: formats} }

func (f *outputFlags) flags() []cli.Flag {
	flag := textFlag(&f.output, categoryReport, "`FORMAT`: "+alternatives(f.formats), "output", f.formats[0])
	flag.Aliases = []string{"o"}
	return []cli.Flag{flag}
}

func (f *outputFlags) check() error {
	if !slices.Contains(f.formats, f.output) {
		return usagef("--output %q: must be one of %s", f.output, strings.Join(f.formats, ", "))
	}
	return nil
}

// inputFlags say how manifests are read.
type inputFlags struct {
	recursive, runCronJobs, substitute, requireDigest bool
	sha256, format                                    string
	envFiles, urlHeaders, urlHeaderFiles              list
	// variables are substituted in manifests; nil for none, or before they are read.
	variables func(name string) (string, bool)
}

func (f *inputFlags) flags() []cli.Flag {
	return []cli.Flag{
		boolFlag(&f.recursive, categoryInput, "read subdirectories as well", "recursive", "R"),
		&cli.StringFlag{
			Name: "format", Destination: &f.format, Category: categoryInput, Value: manifestFormats[0], DefaultText: manifestFormats[0],
			Usage: "`FORMAT`: " + alternatives(manifestFormats),
		},
		textFlag(&f.sha256, categoryInput, "require this `DIGEST` of the one URL among the paths", "sha256", ""),
		pathsFlag(&f.urlHeaders, categoryInput, "send this `HEADER`, NAME: VALUE, with requests for URLs", "url-header", ""),
		pathsFlag(&f.urlHeaderFiles, categoryInput, "send the headers in `FILE` with requests for URLs", "url-header-file", ""),
		boolFlag(&f.runCronJobs, categoryInput, "run the Job of each CronJob once", "run-cronjobs"),
		boolFlag(&f.substitute, categoryInput, "replace ${NAME} in manifests with environment variables", "substitute"),
		pathsFlag(&f.envFiles, categoryInput, "replace ${NAME} in manifests with variables from `FILE`", "env-file", ""),
		boolFlag(&f.requireDigest, categoryInput, "refuse images without a digest", "require-digest"),
	}
}

// manifestFormats are those of --format.
var manifestFormats = []string{manifests.FormatKubernetes, manifests.FormatGCE}

var sha256Digest = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)

func (f *inputFlags) check() error {
	if f.sha256 != "" && !sha256Digest.MatchString(f.sha256) {
		return usagef("--sha256 %q: must be 64 hex digits", f.sha256)
	}
	if err := checkOneOf("format", f.format, manifestFormats...); err != nil {
		return err
	}
	if _, err := manifests.Headers(f.urlHeaders.values, nil); err != nil {
		return usagef("--url-header: %w", err)
	}
	return nil
}

// input returns how manifests are read. Files of variables are read the first time.
func (f *inputFlags) input(c *console) (manifests.Options, error) {
	o := manifests.Options{
		Recursive: f.recursive, Stdin: c.io.Stdin, Format: f.format, SHA256: f.sha256, RunCronJobs: f.runCronJobs, RequireDigest: f.requireDigest,
	}
	if f.variables == nil && (f.substitute || len(f.envFiles.values) > 0) {
		var err error
		if f.variables, err = manifests.Variables(c.environ(), f.envFiles.values, f.substitute); err != nil {
			return o, badInput(err)
		}
	}
	o.Variables = f.variables
	var err error
	if o.Header, err = manifests.Headers(f.urlHeaders.values, f.urlHeaderFiles.values); err != nil {
		return o, badInput(err)
	}
	return o, nil
}

// manifestFlags say how manifests are read, and into which namespace and by which rules.
type manifestFlags struct {
	inputFlags
	podNamespace, podSecurity string
	secrets                   list
}

func (f *manifestFlags) flags() []cli.Flag {
	return append(f.inputFlags.flags(),
		// --namespace is that of containerd.
		&cli.StringFlag{
			Name: "pod-namespace", Aliases: []string{"n"}, Destination: &f.podNamespace, Category: categoryInput, DefaultText: "default",
			Usage: "namespace `NS` of objects that name none",
		},
		listFlag(&f.secrets, categoryInput, "set a Secret from `NAME=SOURCE`, as in file:PATH or env:VAR", "secret", ""),
		textFlag(&f.podSecurity, categoryInput, "Pod Security `LEVEL`: privileged, baseline or restricted[:VERSION]", "pod-security", ""),
	)
}

func (f *manifestFlags) check() error {
	if err := checkNamespace(f.podNamespace); err != nil {
		return err
	}
	return f.inputFlags.check()
}

// input returns how manifests are read.
func (f *manifestFlags) input(c *console) (manifests.Options, error) {
	o, err := f.inputFlags.input(c)
	o.Namespace, o.PodSecurity = f.podNamespace, f.podSecurity
	for _, text := range f.secrets.values {
		key, serr := c.parseSecret(text)
		err = cmp.Or(err, serr)
		o.Secrets = append(o.Secrets, key)
	}
	return o, err
}

func checkNamespace(name string) error {
	if name == "" {
		return nil
	}
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return usagef("--pod-namespace %q: %s", name, wrong[0])
	}
	return nil
}

// pastFlags select pods of earlier runs, on this machine or on a cluster.
type pastFlags struct {
	engineFlags
	clusterFlags
	podNamespace string
}

func (f *pastFlags) flags() []cli.Flag {
	return slices.Concat(f.engineFlags.flags(), f.clusterFlags.flags(), []cli.Flag{&cli.StringFlag{
		Name: "pod-namespace", Aliases: []string{"n"}, Destination: &f.podNamespace, Usage: "only pods of the namespace `NS`", DefaultText: "all",
	}})
}

func (f *pastFlags) check() error {
	return cmp.Or(checkNamespace(f.podNamespace), f.engineFlags.check())
}

// earlierFlags say which pods of the input a command is about, and what becomes of those of earlier runs.
type earlierFlags struct {
	choiceFlags
	rerun, prune, recreate bool
}

func (f *earlierFlags) flags() []cli.Flag {
	return append(f.choiceFlags.flags(),
		boolFlag(&f.rerun, categoryRun, "rerun pods that succeeded in an earlier run", "rerun"),
		boolFlag(&f.recreate, categoryRun, "replace pods that are running, also if nothing has changed", "recreate"),
		boolFlag(&f.prune, categoryRun, "stop pods that came from these paths but are no longer there", "prune"),
	)
}

func (f *earlierFlags) check() error {
	if f.prune && f.given() {
		return usagef("--prune is about the whole input: it cannot be used with %s", &f.choiceFlags)
	}
	return f.choiceFlags.check()
}

// choose leaves the pods in the input that are chosen, and notes which of them are recreated.
func (f *earlierFlags) choose(c *console, set *manifests.Set, p *planning) error {
	chosen, err := f.narrow(c, set)
	if err != nil || !f.recreate {
		return err
	}
	names := map[types.NamespacedName]bool{}
	for _, pod := range chosen {
		names[podspec.NameOf(pod)] = true
	}
	p.recreate = func(pod *v1.Pod) bool { return names[podspec.NameOf(pod)] }
	return nil
}

// queueFlags say whether pods wait for room.
type queueFlags struct{ queue bool }

func (f *queueFlags) flags() []cli.Flag {
	return []cli.Flag{boolFlag(&f.queue, categoryRun, "have pods that do not fit wait until others of the run have ended", "queue")}
}

// podFlags are what run, watch and plan have in common: they say how pods are read, get their images and
// are admitted.
type podFlags struct {
	manifestFlags
	imageFlags
	nodeFlags
	engineFlags
	offline, skipInvalid, userNamespaces bool
}

func (f *podFlags) flags() []cli.Flag {
	return slices.Concat(f.manifestFlags.flags(), f.imageFlags.flags(), f.nodeFlags.flags(), f.engineFlags.flags(), []cli.Flag{
		boolFlag(&f.offline, categoryImages, "pull nothing: every image must be present", "offline"),
		boolFlag(&f.userNamespaces, categoryRun, "have pods that do not set hostUsers get users of their own if possible", "user-namespaces"),
		boolFlag(&f.skipInvalid, categoryRun, "report invalid manifests and run the others", "skip-invalid"),
	})
}

func (f *podFlags) check() error {
	if mode := image.Mode(f.pull); f.offline && mode != image.ByPolicy && mode != image.Never {
		return usagef("--offline pulls nothing: it cannot be used with --pull=%s", mode)
	}
	return check(&f.manifestFlags, &f.imageFlags, &f.nodeFlags, &f.engineFlags)
}

// pullMode returns when images are pulled.
func (f *podFlags) pullMode() image.Mode {
	if f.offline {
		return image.Never
	}
	return image.Mode(f.pull)
}

// input returns how the manifests are read.
func (f *podFlags) input(c *console) (manifests.Options, error) {
	o, err := f.manifestFlags.input(c)
	o.NodeName, o.Places = f.nodeName, true
	o.RequireDigest = f.requireDigest && f.lock == "" // which gives every image a digest
	return o, err
}

// engine returns how the engine is opened for the pods.
func (f *podFlags) engine(c *console) backend.Options {
	o := f.engineFlags.engine(c)
	f.fetchFlags.setTo(&o.Options, c.io.Getenv)
	f.runtimeFlags.setTo(&o)
	return o
}
