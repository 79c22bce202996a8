// Package protocol is what the engine and the shim share: how shims are embedded, started and reached;
// the exit record, a file that says how a container ended; and the URI that tells the shim where to
// write it and the log.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/logs"
)

const (
	scheme = "runonce"

	// LoggerArg is the first argument of the shim's binary when it runs as the logger
	// process of a third-party shim; the second is an Output's URI.
	LoggerArg = "runonce-logger"
	// PauseArg is the first argument of the shim's binary when it runs as the first
	// process of a shared PID namespace.
	PauseArg = "pause"

	// Stdin is the URI of an input that stays open and that nobody writes to.
	Stdin = scheme + ":stdin"

	loggerPoll = 2 * time.Millisecond
)

// Output says where the shim writes a container's log and exit record.
type Output struct {
	// LogPath is the file for stdout and stderr, in the CRI log format. Empty drops them.
	LogPath string
	// RecordPath is the file for the Record. Its directory exists.
	RecordPath string
	// Journal is the socket of the journal that gets the lines of the log as well; empty for none.
	Journal string
	// AttachPath is the socket at which the container's streams can be attached to; empty for none.
	AttachPath string
	// Input says that it has an input, and InputOnce that this ends with the first one who has attached to it.
	Input, InputOnce bool
	// RunFile is the file of the run that removes the container's pod, if it lives until then; empty for none.
	RunFile string
	// NoteBundle asks for a link to the container's bundle at BundlePath: only the shim learns where a
	// daemon has put it.
	NoteBundle bool
}

// URI returns the output as a URI, which is passed to the shim as the task's stdout.
func (o Output) URI() string {
	u := url.URL{Scheme: scheme, Path: o.LogPath}
	values := url.Values{"record": {o.RecordPath}}
	if o.Journal != "" {
		values.Set("journal", o.Journal)
	}
	if o.RunFile != "" {
		values.Set("run", o.RunFile)
	}
	if o.NoteBundle {
		values.Set("bundle", "note")
	}
	if o.AttachPath != "" {
		values.Set("attach", o.AttachPath)
	}
	if o.Input {
		values.Set("input", "open")
	}
	if o.InputOnce {
		values.Set("input", "once")
	}
	u.RawQuery = values.Encode()
	return u.String()
}

// OpenLog opens the log. It is closed by the caller.
func (o Output) OpenLog() (*logs.Writer, error) {
	w, err := logs.OpenWriter(o.LogPath)
	if err != nil || o.Journal == "" {
		return w, err
	}
	if err := w.ToJournal(o.Journal); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// LoggerURI returns the URI that makes a third-party shim start binary as its logger, with
// LoggerArg and the URI as its arguments.
func (o Output) LoggerURI(binary string) string {
	u := url.URL{Scheme: "binary", Path: binary}
	u.RawQuery = url.Values{LoggerArg: {o.URI()}}.Encode()
	return u.String()
}

// LoggingPath is a file that exists while a logger process has not written everything.
func (o Output) LoggingPath() string { return o.RecordPath + ".logging" }

// AwaitLogger waits until the logger process of an ended container has written everything,
// at most for the time given.
func (o Output) AwaitLogger(most time.Duration) {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(loggerPoll) {
		if _, err := os.Stat(o.LoggingPath()); err != nil {
			return
		}
	}
}

// ParseOutput parses the result of URI. It returns false for any other URI.
func ParseOutput(uri string) (Output, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != scheme {
		return Output{}, false
	}
	values := u.Query()
	return Output{
		LogPath: u.Path, RecordPath: values.Get("record"), Journal: values.Get("journal"), NoteBundle: values.Has("bundle"),
		RunFile: values.Get("run"), AttachPath: values.Get("attach"), Input: values.Has("input"), InputOnce: values.Get("input") == "once",
	}, true
}

// BundlePath is a link to the bundle of the container with a record at the path.
func BundlePath(path string) string { return path + ".bundle" }

// Record says when a container's process started and how it ended. It is written when the
// process starts, without an end, and again when it has ended. For a third-party shim it is
// also written before the process starts, without a time; then the process may have started.
type Record struct {
	ContainerID string    `json:"containerID"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	// ExitCode and OOMKilled are valid once FinishedAt is set.
	ExitCode  int32 `json:"exitCode"`
	OOMKilled bool  `json:"oomKilled,omitempty"`
	// Usage is what the container has used. A third-party shim, and an older one of ours, does not tell.
	Usage podusage.Total `json:"usage,omitzero"`
}

// Ended reports whether the process has ended.
func (e Record) Ended() bool { return !e.FinishedAt.IsZero() }

// reserved is the space for an end, a block of most file systems. A record is shorter.
const reserved = 4096

// ReservePath is a file that has the space for the end of the container with a record at the path.
func ReservePath(path string) string { return path + ".reserved" }

// Reserve reserves space for the end of a container that is about to start: it may fill the disk.
func Reserve(path string) error {
	if err := os.WriteFile(ReservePath(path), bytes.Repeat([]byte(" "), reserved), 0o600); err != nil {
		return errors.Join(fmt.Errorf("reserving space for the record of a container: %w", err), os.Remove(ReservePath(path)))
	}
	return nil
}

// Write replaces the file at path with the record, atomically, and returns once that is on disk. For an end it uses what Reserve has
// reserved, if there is no other space, and else gives it back.
func (e Record) Write(path string) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the record of container %q: %w", e.ContainerID, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".record-*")
	if err == nil {
		err = replace(path, f, data)
	}
	if e.Ended() {
		if err == nil {
			_ = os.Remove(ReservePath(path))
		} else if f, ferr := os.OpenFile(ReservePath(path), os.O_WRONLY, 0); ferr == nil {
			// The spaces after it stay: to truncate the file would free its space.
			err = replace(path, f, data)
		}
	}
	if err != nil {
		return fmt.Errorf("recording container %q: %w", e.ContainerID, err)
	}
	return nil
}

// replace puts a file with the data in the place of the one at path, and on disk.
func replace(path string, f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return atomicfile.Sync(filepath.Dir(path))
}

// Read reads what Write wrote. Without a file the error wraps fs.ErrNotExist.
func Read(path string) (Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Record{}, fmt.Errorf("reading a container's record: %w", err)
	}
	var e Record
	if err := json.Unmarshal(data, &e); err != nil {
		return Record{}, fmt.Errorf("reading the record %q: %w", path, err)
	}
	return e, nil
}
