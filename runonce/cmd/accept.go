package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runtime/serve/apiserver"
)

// acceptedDir is where the pods are kept that clients have created, below --root.
const acceptedDir = "accepted"

// acceptor has "watch" run the pods that clients create: each becomes a manifest in a directory that is watched.
type acceptor struct {
	accepts bool
	dir     string
	asked   chan *acceptance // those that wait for the loop; nil without --accept
}

// acceptance is a pod that a client creates.
type acceptance struct {
	pod    *v1.Pod
	dryRun bool
	file   string
	answer chan error // gets one
}

// open makes the directory, and returns the paths of manifests with it.
func (a *acceptor) open(root string, paths []string) ([]string, error) {
	if !a.accepts {
		return paths, nil
	}
	a.dir, a.asked = filepath.Join(root, acceptedDir), make(chan *acceptance)
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, unusable(fmt.Errorf("making the directory of accepted pods: %w", err))
	}
	return append(slices.Clip(paths), a.dir), nil
}

// orNone returns it if it accepts pods.
func (a *acceptor) orNone() apiserver.Acceptor {
	if a == nil || !a.accepts {
		return nil
	}
	return a
}

// Accept implements apiserver.Acceptor. What has begun is not over when ctx is done.
func (a *acceptor) Accept(ctx context.Context, pod *v1.Pod, dryRun bool) error {
	one := &acceptance{pod: pod, dryRun: dryRun, answer: make(chan error, 1)}
	select {
	case a.asked <- one:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-one.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget has a pod not run any more that a client has created.
func (a *acceptor) forget(pod *v1.Pod) error {
	if !a.has(pod) {
		return nil
	}
	return removeFile(pod.Annotations[podspec.AnnotationPath])
}

// has says whether a client has created the pod. It is run once, as by a kubelet.
func (a *acceptor) has(pod *v1.Pod) bool {
	return a.dir != "" && filepath.Dir(pod.Annotations[podspec.AnnotationPath]) == a.dir
}

// write writes the manifest of the pod into the directory.
func (one *acceptance) write(dir string) error {
	pod := one.pod.DeepCopy()
	pod.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Pod"))
	text, err := json.Marshal(struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              v1.PodSpec `json:"spec"`
	}{pod.TypeMeta, pod.ObjectMeta, pod.Spec})
	if err != nil {
		return err
	}
	one.file = filepath.Join(dir, atomicfile.Name(pod.Namespace, pod.Name)+".json") // names that are too long are refused when that is read
	if err := atomicfile.Write(one.file, text, 0o600); err != nil {
		return fmt.Errorf("keeping the pod: %w", err)
	}
	return atomicfile.Sync(dir)
}

// accept makes a change of a pod that a client creates, whose answer comes with the plan. nil is returned if it was
// answered.
func (c *watchCommand) accept(ctx context.Context, one *acceptance) *change {
	next, err := c.tryAccept(ctx, one)
	if err != nil || next == nil {
		one.conclude(err)
		return nil
	}
	next.asked = one
	return next
}

// tryAccept returns the change, nil for a dry run, which ends before there is one.
func (c *watchCommand) tryAccept(ctx context.Context, one *acceptance) (*change, error) {
	dir, reading := c.dir, c.reading
	if one.dryRun {
		temporary, err := os.MkdirTemp(c.root, ".dry-run-")
		if err != nil {
			return nil, fmt.Errorf("keeping the pod for a dry run: %w", err)
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		dir, reading.paths = temporary, append(slices.Clip(reading.paths), temporary)
	}
	if err := one.write(dir); err != nil {
		return nil, err
	}
	set, err := c.read(ctx, reading)
	if refused := one.refusal(set, err); refused != nil {
		return nil, refused
	}
	if err != nil || one.dryRun {
		return nil, err
	}
	return c.prepare(ctx, set)
}

// refusal returns what is wrong with the pod's own manifest, nil for nothing.
func (one *acceptance) refusal(set *manifests.Set, err error) error {
	var problems manifests.Diagnostics // none is an error if some are left out
	if !errors.As(err, &problems) && set != nil {
		for _, in := range set.Invalid {
			problems = append(problems, in.Problems...)
		}
	}
	refused := &apiserver.RefusedError{}
	for _, p := range problems {
		if p.File == one.file && p.Severity == manifests.SeverityError {
			refused.Problems = append(refused.Problems, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: p.Field, Message: p.Text()})
		}
	}
	if len(refused.Problems) == 0 {
		return nil
	}
	return refused
}

// conclude answers. The manifest of a pod that is not accepted is removed.
func (one *acceptance) conclude(err error) {
	if err != nil && one.file != "" {
		err = cmp.Or(removeFile(one.file), err)
	}
	one.answer <- err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the manifest of a pod that a client has created: %w", err)
	}
	return nil
}

// answer answers the client for whose pod the change was made, by the plan, if that was made without an error.
func (next *change) answer(plan admit.Plan, err error) {
	one := next.asked
	if one == nil {
		return
	}
	if err == nil {
		err = one.verdict(plan)
	}
	one.conclude(err)
}

// verdict returns why the plan does not run the pod, nil if it does.
func (one *acceptance) verdict(plan admit.Plan) error {
	for _, d := range plan.Decisions {
		if d.Pod.Annotations[podspec.AnnotationPath] != one.file || d.Verdict == admit.Admitted {
			continue
		}
		return &apiserver.RefusedError{Reason: d.Reason, Message: d.Message}
	}
	return nil
}
