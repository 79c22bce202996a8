package containerd

import (
	"context"
	"errors"
	"fmt"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/attach"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// Attach takes part in the input and the output of a container. Its shim or its logger serves that, so that the process
// that serves containerd may end meanwhile.
func (e *Engine) Attach(ctx context.Context, id string, s engine.Streams) error {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := func() {
		if s.Size != (engine.Size{}) {
			e.resize(streaming, id, s.Size)
		}
		if s.Resize != nil {
			go eachSize(streaming, s.Resize, func(size engine.Size) { e.resize(streaming, id, size) })
		}
		if s.Started != nil {
			s.Started()
		}
	}
	ended := func() {}
	if known, _, _ := e.containers.get(id); known.Labels[labelThirdParty] == thirdPartyOnce {
		ended = func() { e.closeInput(ctx, id) }
	}
	err := attach.Connect(streaming, e.attachPath(id), attach.Streams{
		Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Begun: begun, InputEnded: ended,
	})
	if protocol.NotListening(err) {
		err = errors.New("it does not run, or has neither an input nor a terminal")
	}
	if err != nil {
		return fmt.Errorf("attaching to container %q: %w", id, err)
	}
	return nil
}

// closeInput has a third-party shim, which holds the input open as well, close it.
func (e *Engine) closeInput(ctx context.Context, id string) {
	_ = e.do(ctx, func(ctx context.Context, s *session) error {
		_, err := s.Tasks().CloseIO(ctx, &tasksapi.CloseIORequest{ContainerID: id, Stdin: true})
		return err
	})
}

// eachSize calls f with each of the sizes, until ctx is done.
func eachSize(ctx context.Context, sizes <-chan engine.Size, f func(engine.Size)) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			f(size)
		case <-ctx.Done():
			return
		}
	}
}

// resize gives the container's terminal a size.
func (e *Engine) resize(ctx context.Context, id string, size engine.Size) {
	_ = e.do(ctx, func(ctx context.Context, s *session) error {
		_, err := s.Tasks().ResizePty(ctx, &tasksapi.ResizePtyRequest{ContainerID: id, Width: uint32(size.Width), Height: uint32(size.Height)})
		return err
	})
}
