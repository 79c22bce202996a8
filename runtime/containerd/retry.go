package containerd

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
)

// do calls op with the current session. When the process that serves it has ended, do replaces
// the session and calls op again, which must be safe to repeat. Processes that serve only for
// a moment may make it do so more than once.
func (e *Engine) do(ctx context.Context, op func(context.Context, *session) error) error {
	s, err := e.currentSession()
	if err != nil {
		return err
	}
	ctx, end := e.heartbeat.guard(namespaces.WithNamespace(ctx, e.o.Namespace))
	defer end()
	for {
		err = notFound(images.NativeError(op(ctx, s)))
		if err != nil && e.heartbeat.interrupted(ctx) {
			return e.heartbeat.dead
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		// Another call may have replaced the session, and its closing may be the error.
		next, serr := e.currentSession()
		if serr == nil && next == s && e.lost(s, err) {
			next, serr = e.replace(ctx, s)
		}
		if serr != nil {
			return serr
		}
		if next == s {
			return err
		}
		s = next
	}
}

// lost reports whether the error may mean that the process that served s has ended.
func (e *Engine) lost(s *session, err error) bool {
	return e.o.Address == "" && s.server == nil && errdefs.IsUnavailable(err)
}

func (e *Engine) currentSession() (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil, errors.New("using the container engine: it is closed")
	}
	return e.current, nil
}

// usable returns an error if the engine is closed. One that only looks has nothing to close.
func (e *Engine) usable() error {
	if e.o.Looks {
		return nil
	}
	_, err := e.currentSession()
	return err
}

// replace returns the session that replaces the lost one, made by this call or by another.
func (e *Engine) replace(ctx context.Context, lost *session) (*session, error) {
	e.opening.Lock()
	defer e.opening.Unlock()
	s, err := e.currentSession()
	if err != nil || s != lost {
		return s, err
	}
	e.o.Log.Info("the process that served containerd has exited; taking over")
	if s, err = connect(ctx, e.o); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil, errors.Join(errors.New("using the container engine: it is closed"), s.Close())
	}
	e.current = s
	// Its calls have failed already.
	_ = lost.Close()
	return s, nil
}

// notFound makes an error of containerd's class NotFound wrap engine.ErrNotFound.
func notFound(err error) error {
	var ours *failure.Error
	if !errdefs.IsNotFound(err) || errors.Is(err, engine.ErrNotFound) || errors.As(err, &ours) {
		return err
	}
	return failure.WithMessage(err.Error(), errors.Join(engine.ErrNotFound, err))
}
