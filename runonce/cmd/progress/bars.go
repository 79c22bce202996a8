package progress

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// barWidth is the width of a bar, in columns.
const barWidth = 30

// screen is standard error: lines, and bars below them while some are shown.
type screen struct {
	out io.Writer

	mu     sync.Mutex
	live   *mpb.Progress // nil while there are no bars
	bars   map[string]*bar
	frames chan any // a value draws the bars again
	gone   chan any // gets a value when they cannot be drawn any more
	broken bool     // they could not be drawn
}

// row is one line below the others. With a total it has a bar.
type row struct {
	key         string
	title       string
	done, total int64
	numbers     string
}

// bar draws its row. It is drawn in a goroutine of the library, without the screen's lock.
type bar struct {
	*mpb.Bar
	row atomic.Pointer[row]
}

// Write writes lines, above the bars.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		if n, err := s.live.Write(p); err == nil {
			s.draw()
			return n, nil
		}
	}
	return s.out.Write(p)
}

// hasBars says whether bars are shown.
func (s *screen) hasBars() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil
}

// show replaces the bars.
func (s *screen) show(rows []row) {
	if len(rows) == 0 {
		s.clear()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return
	}
	if s.live == nil {
		s.bars, s.frames, s.gone = map[string]*bar{}, make(chan any), make(chan any, 1)
		s.live = mpb.New(mpb.WithOutput(s.out), mpb.WithManualRefresh(s.frames), mpb.WithShutdownNotifier(s.gone))
	}
	shown := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		shown[r.key] = true
		if b := s.bars[r.key]; b != nil {
			b.row.Store(r)
		} else if b, err := s.add(r); err == nil { // else the terminal is gone
			s.bars[r.key] = b
		}
	}
	for key, b := range s.bars {
		if !shown[key] {
			b.Abort(true)
			delete(s.bars, key)
		}
	}
	s.draw()
}

// draw draws the bars. The caller holds the lock.
func (s *screen) draw() {
	select {
	case s.frames <- nil:
	case <-s.gone:
		s.broken, s.live = true, nil
	}
}

func (s *screen) add(r *row) (_ *bar, err error) {
	b := &bar{}
	b.row.Store(r)
	style := mpb.BarStyle().Build()
	filler := mpb.BarFillerFunc(func(w io.Writer, st decor.Statistics) error {
		r := b.row.Load()
		if r.total == 0 {
			return nil
		}
		st.Current, st.Total = min(r.done, r.total), r.total
		return style.Fill(w, st)
	})
	options := []mpb.BarOption{
		mpb.BarWidth(barWidth),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.row.Load().title })),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return b.row.Load().numbers })),
	}
	if r.key == "" {
		options = append(options, mpb.BarPriority(1<<30)) // the status stays below the bars
	}
	b.Bar, err = s.live.Add(0, filler, options...)
	return b, err
}

// clear removes the bars.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return
	}
	for _, b := range s.bars {
		b.Abort(true)
	}
	// The library draws an aborted bar twice more. The third frame is empty.
	for range 3 {
		if s.draw(); s.live == nil {
			return
		}
	}
	s.live.Shutdown()
	s.live = nil
}

// belowBars is a writer for the same terminal, from which the bars are removed first.
type belowBars struct {
	io.Writer
	screen *screen
}

func (w belowBars) Write(p []byte) (int, error) {
	w.screen.clear()
	return w.Writer.Write(p)
}
