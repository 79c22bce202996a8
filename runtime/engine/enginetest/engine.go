// Package enginetest has an in-memory engine that runs scripted programs, other fakes, and the
// tests that every engine has to pass.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/logs"
)

// Program says what the process of a container does.
type Program func(c engine.ContainerConfig) Behavior

// Behavior is the life of one process.
type Behavior struct {
	// Err keeps the process from starting.
	Err error
	// Runs says that the process runs until it is stopped; else it exits after After
	// with Code.
	Runs  bool
	After time.Duration
	Code  int32
	OOM   bool
	// IgnoresTerm makes the process ignore all signals but SIGKILL.
	IgnoresTerm bool
	// HandlesTerm makes the process exit with Code, TermAfter after any signal but SIGKILL.
	HandlesTerm bool
	TermAfter   time.Duration
	// Log is what the process writes to stdout, by line, and Errors what it then writes to
	// stderr.
	Log, Errors []string
	// Exec answers commands run inside the container; nil makes every one exit 0.
	Exec func(command []string) engine.ExecResult
	// ExecTakes says how long such a command runs, unless its container ends before; nil makes
	// every one end at once.
	ExecTakes func(command []string) time.Duration
}

// Engine is an in-memory engine. A second runtime.Pods on the same Engine is a later process,
// which finds the containers of the first.
type Engine struct {
	Program Program
	// Store are the images that are present, by reference.
	Store map[string]engine.Image
	// Registry are the images that can be pulled, by reference.
	Registry map[string]engine.Image
	// Users are the credentials that private images need, by reference.
	Users map[string]engine.Credential
	// PullErrors are returned, one a call, before a pull succeeds.
	PullErrors map[string][]error
	// ResolveErrors are returned, one a call, before a digest is found.
	ResolveErrors map[string][]error
	// PullTakes is how long a pull takes.
	PullTakes time.Duration
	// Used is what each container has used when it ends, besides its OOM kills.
	Used podusage.Total
	// Layers are the sizes of containers' own layers, by container name.
	Layers map[string]int64
	// Dir has the root directory of each container, by ID, as far as one was opened. Programs do not
	// use it.
	Dir string

	mu         sync.Mutex
	containers []*process
	subs       map[chan engine.Event]struct{}
	mounted    map[string]string // references by key
	pulls      []string
	lastPID    int
}

// process is a container with its scripted life.
type process struct {
	engine.Container
	life Behavior
	// within is the path of the process namespace of another container in which it runs, "" for one of its own.
	within string
	// stdin says that it has an input, and stdinOnce that this ends with the first one who attaches.
	stdin, stdinOnce bool
	timer            *time.Timer
	started          chan struct{} // closed when it runs
	done             chan struct{} // closed at the exit
}

// Start runs the program that the script has for the container.
func (e *Engine) Start(ctx context.Context, c engine.ContainerConfig) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.find(c.ID); old != nil {
		if old.State == engine.StateRunning {
			return fmt.Errorf("starting container %q: it runs already", c.ID)
		}
		e.drop(c.ID)
	}
	img, ok := e.stored(c.Image)
	if !ok && !c.Pause {
		return fmt.Errorf("starting container %q: image %q: %w", c.ID, c.Image, engine.ErrNotFound)
	}
	life := e.Program(c)
	if life.Err != nil {
		return life.Err
	}
	now := time.Now()
	e.lastPID++
	p := &process{life: life, within: processNamespace(c.Spec), stdin: c.Stdin, stdinOnce: c.StdinOnce, started: make(chan struct{}), done: make(chan struct{}), Container: engine.Container{
		ID: c.ID, PodUID: c.PodUID, Name: c.Name, Attempt: c.Attempt, Image: c.Image, ImageID: img.ID, ImageDigest: img.Digest,
		LogPath: c.LogPath, Labels: c.Labels, Last: c.Last, State: engine.StateCreated, PID: e.lastPID, CreatedAt: now, StartedAt: now,
	}}
	if err := writeLog(c.LogPath, life); err != nil {
		return err
	}
	e.containers = append(e.containers, p)
	if c.Created != nil {
		e.mu.Unlock()
		c.Created()
		e.mu.Lock()
	}
	p.State = engine.StateRunning
	close(p.started)
	e.send(engine.EventStarted, p)
	if !life.Runs {
		p.timer = time.AfterFunc(life.After, func() { e.end(p, life.Code) })
	}
	return nil
}

func writeLog(path string, life Behavior) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	w, err := logs.OpenWriter(path)
	if err != nil {
		return err
	}
	copyTo := func(stream string, lines []string) error {
		var text strings.Builder
		for _, l := range lines {
			text.WriteString(l + "\n")
		}
		return w.Copy(stream, strings.NewReader(text.String()))
	}
	return errors.Join(copyTo(logs.Stdout, life.Log), copyTo(logs.Stderr, life.Errors), w.Close())
}

// end records the exit of a process, once.
func (e *Engine) end(p *process, code int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exit(p, code)
}

// exit is end under the lock.
func (e *Engine) exit(p *process, code int32) {
	if p.State != engine.StateRunning {
		return
	}
	own := fmt.Sprintf("/proc/%d/ns/pid", p.PID)
	p.State, p.PID = engine.StateExited, 0
	p.Exit = engine.Exit{
		ContainerID: p.ID, Attempt: p.Attempt, ExitCode: code, OOMKilled: p.life.OOM,
		StartedAt: p.StartedAt, FinishedAt: time.Now(), Usage: e.Used,
	}
	p.Exit.Usage.OOMKills = new(int64)
	if p.life.OOM {
		*p.Exit.Usage.OOMKills = 1
	}
	close(p.done)
	if p.life.OOM {
		e.send(engine.EventOOM, p)
	}
	e.send(engine.EventExited, p)
	// The kernel ends a process namespace with its first process.
	for _, other := range e.containers {
		if other.within == own {
			e.exit(other, 128+int32(syscall.SIGKILL))
		}
	}
}

// processNamespace returns the path of the process namespace of a spec, "" for a new one.
func processNamespace(s *specs.Spec) string {
	if s == nil || s.Linux == nil {
		return ""
	}
	for _, ns := range s.Linux.Namespaces {
		if ns.Type == specs.PIDNamespace {
			return ns.Path
		}
	}
	return ""
}

// Kill ends a running container from outside, as the kernel or an operator would.
func (e *Engine) Kill(id string, code int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.find(id); p != nil {
		e.exit(p, code)
	}
}

// Lose forgets how every process ended, as a reboot does.
func (e *Engine) Lose() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.containers {
		if p.State == engine.StateRunning {
			p.State = engine.StateUnknown
		}
	}
}

// Stop signals the process, and kills it after the grace period.
func (e *Engine) Stop(ctx context.Context, id string, sig syscall.Signal, grace time.Duration) error {
	e.mu.Lock()
	p := e.find(id)
	e.mu.Unlock()
	if p == nil {
		return nil
	}
	switch {
	case sig != syscall.SIGKILL && p.life.HandlesTerm && p.life.TermAfter > 0:
		time.AfterFunc(p.life.TermAfter, func() { e.end(p, p.life.Code) })
	case sig != syscall.SIGKILL && p.life.HandlesTerm:
		e.end(p, p.life.Code)
		return nil
	case sig == syscall.SIGKILL || !p.life.IgnoresTerm:
		e.end(p, 128+int32(sig))
		return nil
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		e.end(p, 128+int32(syscall.SIGKILL))
	case <-ctx.Done():
		return fmt.Errorf("stopping container %q: %w", id, context.Cause(ctx))
	}
	return nil
}

// Remove forgets the container.
func (e *Engine) Remove(_ context.Context, id string) error {
	e.Kill(id, 128+int32(syscall.SIGKILL))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(id)
	return nil
}

// Containers returns the containers in order of creation.
func (e *Engine) Containers(_ context.Context, podUID string) ([]engine.Container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []engine.Container
	for _, p := range e.containers {
		if podUID == "" || p.PodUID == podUID {
			all = append(all, p.Container)
		}
	}
	return all, nil
}

// Events sends every event to every subscriber.
func (e *Engine) Events(ctx context.Context) (<-chan engine.Event, error) {
	ch := make(chan engine.Event, 1024)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs == nil {
		e.subs = map[chan engine.Event]struct{}{}
	}
	e.subs[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.subs, ch)
		close(ch)
	})
	return ch, nil
}

// Image returns the image of Store.
func (e *Engine) Image(_ context.Context, ref string) (engine.Image, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if img, ok := e.stored(ref); ok {
		return img, nil
	}
	return engine.Image{}, fmt.Errorf("image %q: %w", ref, engine.ErrNotFound)
}

// Images returns the images of Store by reference.
func (e *Engine) Images() map[string]engine.Image {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.Store)
}

// RemoveImage removes an image from Store, and returns its size.
func (e *Engine) RemoveImage(ref string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	size := e.Store[ref].Size
	delete(e.Store, ref)
	return size
}

// stored finds an image of Store. The caller holds the lock.
func (e *Engine) stored(ref string) (engine.Image, bool) {
	if img, ok := e.Store[ref]; ok {
		return img, true
	}
	for name, img := range e.Store {
		if image.Same(ref, name, img.Digest) {
			img.Ref = ref
			return img, true
		}
	}
	return engine.Image{}, false
}

// Pull copies the image from Registry to Store, if Users allows it.
func (e *Engine) Pull(ctx context.Context, ref string, credentials ...engine.Credential) (engine.Image, error) {
	e.mu.Lock()
	e.pulls = append(e.pulls, ref)
	e.mu.Unlock()
	if e.PullTakes > 0 {
		select {
		case <-time.After(e.PullTakes):
		case <-ctx.Done():
			return engine.Image{}, context.Cause(ctx)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if errs := e.PullErrors[ref]; len(errs) > 0 {
		e.PullErrors[ref] = errs[1:]
		return engine.Image{}, errs[0]
	}
	img, err := e.inRegistry(ref, credentials)
	if err != nil {
		return engine.Image{}, err
	}
	if e.Store == nil {
		e.Store = map[string]engine.Image{}
	}
	e.Store[ref] = img
	return img, nil
}

// Push puts an image into Registry, by its tag and by its digest.
func (e *Engine) Push(ref string, img engine.Image) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Registry == nil {
		e.Registry = map[string]engine.Image{}
	}
	for _, name := range []string{ref, image.Repository(ref) + "@" + img.Digest} {
		img.Ref = name
		e.Registry[name] = img
	}
}

// Withdraw removes an image from Registry by its tag.
func (e *Engine) Withdraw(ref string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.Registry, ref)
}

// Resolve returns the digest of the image in Registry.
func (e *Engine) Resolve(_ context.Context, ref string, credentials ...engine.Credential) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errs := e.ResolveErrors[ref]; len(errs) > 0 {
		e.ResolveErrors[ref] = errs[1:]
		return "", errs[0]
	}
	img, err := e.inRegistry(ref, credentials)
	return img.Digest, err
}

// inRegistry finds an image of Registry, if Users allows it.
func (e *Engine) inRegistry(ref string, credentials []engine.Credential) (img engine.Image, err error) {
	img, ok := e.Registry[ref]
	user, private := e.Users[ref]
	switch {
	case private && !slices.Contains(credentials, user):
		err = errors.New("the registry answers 401 Unauthorized")
	case !ok:
		err = errors.New("no such image in the registry")
	default:
		return img, nil
	}
	return engine.Image{}, &failure.Error{Why: failure.ReasonErrImagePull, Final: true, Err: fmt.Errorf("pulling %q: %w", ref, err)}
}

// Usage returns what Layers has for the container's name.
func (e *Engine) Usage(_ context.Context, id string) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.find(id); p != nil {
		return e.Layers[p.Name], nil
	}
	return 0, nil
}

// Mount records that the image is mounted under the key.
func (e *Engine) Mount(_ context.Context, ref, key, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.stored(ref); !ok {
		return fmt.Errorf("mounting image %q: %w", ref, engine.ErrNotFound)
	}
	if e.mounted == nil {
		e.mounted = map[string]string{}
	}
	e.mounted[key] = ref
	return nil
}

// CopyFromImage finds no directories in the image.
func (e *Engine) CopyFromImage(_ context.Context, ref string, _ map[string]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.stored(ref); !ok {
		return fmt.Errorf("copying from image %q: %w", ref, engine.ErrNotFound)
	}
	return nil
}

// Release forgets what was mounted under the key.
func (e *Engine) Release(_ context.Context, key string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mounted, key)
	return nil
}

// Mounted returns the images that are mounted, in order.
func (e *Engine) Mounted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Values(e.mounted))
}

// Pulls returns the references that were pulled, in order.
func (e *Engine) Pulls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.pulls)
}

func (e *Engine) find(id string) *process {
	for _, p := range e.containers {
		if p.ID == id {
			return p
		}
	}
	return nil
}

func (e *Engine) drop(id string) {
	e.containers = slices.DeleteFunc(e.containers, func(p *process) bool { return p.ID == id })
}

func (e *Engine) send(kind engine.EventType, p *process) {
	for ch := range e.subs {
		ch <- engine.Event{Type: kind, ContainerID: p.ID, PodUID: p.PodUID}
	}
}
