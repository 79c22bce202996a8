package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The events of a pod are a file in the directory of its logs, one for each root: they are kept as long as the logs.
const (
	eventsPrefix = "events-"
	eventsSuffix = ".jsonl"
)

// EventsPath returns the path of the pod's events.
func (s Store) EventsPath(pod Pod) string {
	return filepath.Join(pod.Dir(s.Dir), eventsPrefix+s.id()+eventsSuffix)
}

// MakeDir makes the directory of the pod's logs and events, before there is any.
func (s Store) MakeDir(pod Pod, about Mark) error {
	if err := s.mark(pod.Dir(s.Dir), about); err != nil {
		return fmt.Errorf("making the log directory of pod %q: %w", pod.Name, err)
	}
	return nil
}

func (s Store) removeEvents(pod Pod) error {
	if err := os.Remove(s.EventsPath(pod)); err != nil && !isAbsent(err) {
		return fmt.Errorf("removing events: %w", err)
	}
	return nil
}

// isOurs reports whether the entry of a pod's directory is one that only roots make.
func isOurs(e os.DirEntry) bool {
	return isMark(e) || strings.HasPrefix(e.Name(), eventsPrefix) && strings.HasSuffix(e.Name(), eventsSuffix)
}

// HasLogs reports whether a container of the pod was ever started. If not, only events of the pod are there, as of
// one that was rejected.
func (f Found) HasLogs() bool {
	entries, err := os.ReadDir(f.Path)
	for _, e := range entries {
		if e.IsDir() {
			return true
		}
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}
