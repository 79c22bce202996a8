// Package events keeps the events of a pod in a file, to which any process appends. What is in it is history, and no
// state of the pod: nothing waits for the disk, or for another process, and an event may be lost.
package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podevent"
)

const (
	// version is that of a line's format. Lines of other versions are skipped.
	version = 1
	// maxSize is at what size, in bytes, a file is rewritten with only its newest events.
	maxSize = 64 << 10
	// keepSize and keepEvents are how much of it stays then: bytes, and events that differ.
	keepSize   = maxSize / 2
	keepEvents = 100
	// maxRead bounds what is read of a file, in bytes. No file that we have written is so large.
	maxRead = 16 * maxSize

	mode = 0o640
)

// line is an event in the file, as JSON in a line of its own. Events of several lines that say the same are one.
type line struct {
	Version int `json:"version"`
	podevent.Event
}

// Append appends the events to the file, which it makes if it does not exist. The error wraps fs.ErrNotExist if its
// directory does not.
func Append(path string, events ...podevent.Event) (err error) {
	f, err := open(path)
	if err != nil {
		return fmt.Errorf("recording events: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil { // which unlocks it
			err = fmt.Errorf("recording events in %s: %w", path, err)
		}
	}()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	text := encode(events)
	if last := make([]byte, 1); size > 0 {
		if _, err := f.ReadAt(last, size-1); err != nil || last[0] != '\n' {
			text = append([]byte{'\n'}, text...) // after a line that was cut off, as on a full disk
		}
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if size+int64(len(text)) > maxSize {
		return compact(path, f)
	}
	return nil
}

// maxOpens bounds how often a file is opened that others replace meanwhile.
const maxOpens = 3

// open opens the file for appending, and keeps others from replacing it until it is closed, unless somebody is just
// doing that: then what is written may be lost.
func open(path string) (*os.File, error) {
	for n := 1; ; n++ {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, mode)
		if err != nil {
			return nil, err
		}
		if _ = flock(f, unix.LOCK_SH); n == maxOpens || !isReplaced(f) {
			return f, nil
		}
		_ = f.Close() // which happened before it was locked
	}
}

// flock locks the file, if nobody holds it in a way that excludes that, and reports whether it is locked.
func flock(f *os.File, how int) bool { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) == nil }

// isReplaced reports whether the open file has no name any more.
func isReplaced(f *os.File) bool {
	var now unix.Stat_t
	return unix.Fstat(int(f.Fd()), &now) == nil && now.Nlink == 0
}

// compact replaces the open file by one with only its newest events. While others append to it, it is left to them.
func compact(path string, f *os.File) error {
	if !flock(f, unix.LOCK_EX) {
		return nil
	}
	all, err := read(f)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, encode(newest(all)), mode)
}

// newest returns as many of the last events as are kept.
func newest(all []podevent.Event) []podevent.Event {
	all = all[max(0, len(all)-keepEvents):]
	size := 0
	for i, e := range slices.Backward(all) {
		if size += len(encode([]podevent.Event{e})); size > keepSize {
			return all[i+1:]
		}
	}
	return all
}

func encode(events []podevent.Event) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, one := range events {
		_ = e.Encode(line{version, one}) // texts, numbers and times
	}
	return b.Bytes()
}

// Read returns the events of the file, each once, in the order in which they have happened last. A file that does not
// exist has none.
func Read(path string) ([]podevent.Event, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	all, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	return all, nil
}

func read(f io.ReaderAt) ([]podevent.Event, error) {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxRead))
	return decode(data), err
}

// decode returns the events of the lines that can be understood. A last one that is not complete is left out.
func decode(data []byte) []podevent.Event {
	var all []podevent.Event
	for text := range bytes.Lines(data) {
		var l line
		if !bytes.HasSuffix(text, []byte{'\n'}) || json.Unmarshal(text, &l) != nil || l.Version != version {
			continue
		}
		if e := l.Event; e.Type != "" && e.Reason != "" && e.Count > 0 && !e.FirstSeen.IsZero() && !e.LastSeen.Before(e.FirstSeen) {
			all = append(all, e)
		}
	}
	return podevent.Aggregate(all)
}
