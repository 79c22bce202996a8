package flock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// tries is how often a cleanup is tried that leaves the file; the pauses between them grow from firstPause to some minutes.
const (
	tries      = 8
	firstPause = time.Second
)

// Cleanup is what remains to be done for a run that was killed before it could remove what it had made. It is in the file that
// the run keeps locked while it lives.
type Cleanup struct {
	// Command is a program with its arguments that removes what killed runs have left, pods and objects.
	Command []string `json:"command"`
	// Objects are those that the run has made besides pods, in its words.
	Objects []string `json:"objects,omitempty"`
	// Report names the run for those who keep its report, "" for none.
	Report string `json:"report,omitempty"`
}

// CreateRun makes and locks the file of a run in the directory, with a name of its own. cleanup is nil for a run that removes
// nothing. At its end, the run removes the file and then closes it.
func CreateRun(dir string, cleanup *Cleanup) (*os.File, error) {
	f, err := os.CreateTemp(dir, "run-")
	if err != nil {
		return nil, err
	}
	_, err = Lock(f)
	if err == nil && cleanup != nil {
		err = json.NewEncoder(f).Encode(cleanup)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the file of a run: %w", err), os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// ReadCleanup returns what remains to be done for the run of a file if it is killed, without a command for nothing. A file that was
// not written completely is that of a run that has made nothing yet.
func ReadCleanup(path string) (Cleanup, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Cleanup{}, fmt.Errorf("reading what a run would have removed: %w", err)
	}
	var c Cleanup
	_ = json.Unmarshal(text, &c)
	return c, nil
}

// FollowRun waits until the run of a file ends. If it was killed, it has run execute the command, repeatedly until somebody has
// removed the file. Of all that follow runs of one directory, one does that at a time: the command inherits the lock for
// that, since those who follow may end because of what it does.
func FollowRun(path string, run func(command []string, inherits *os.File) error) error {
	f, err := Open(path, syscall.LOCK_SH)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return ifExists(fmt.Errorf("waiting for the end of a run: %w", err))
	}
	cleanup, err := ReadCleanup(path)
	if err != nil || len(cleanup.Command) == 0 {
		return ifExists(err)
	}
	pause := firstPause
	for range tries {
		done, rerr := clean(path, cleanup.Command, run)
		if done {
			return nil
		}
		err = rerr
		time.Sleep(pause)
		pause *= 2
	}
	return fmt.Errorf("removing what a killed run has left: %w", err)
}

// clean runs the command unless the file is gone, and reports whether it is gone then.
func clean(path string, command []string, run func([]string, *os.File) error) (done bool, err error) {
	turn, err := Open(filepath.Dir(path), syscall.LOCK_EX)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), err
	}
	defer func() { _ = turn.Close() }()
	if !exists(path) {
		return true, nil
	}
	err = run(command, turn)
	return !exists(path), err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// ifExists returns the error unless it says that there is no file.
func ifExists(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
