package logs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollPeriod is how often a log is looked at where the kernel does not tell of changes.
const pollPeriod = 200 * time.Millisecond

// watcher tells of changes in a directory.
type watcher struct {
	changed <-chan struct{} // holds at most one: changes that nobody waited for are one
	close   func()
}

// watchDir watches the directory by inotify, or by the clock when the user's watches are
// used up or the directory is on a file system without.
func watchDir(dir string) watcher {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return pollDir()
	}
	const changes = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
	if _, err := unix.InotifyAddWatch(fd, dir, changes|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd)
		return pollDir()
	}
	f := os.NewFile(uintptr(fd), "inotify")
	changed := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 16<<10)
		for {
			if _, err := f.Read(buf); err != nil {
				return // closed
			}
			wake(changed)
		}
	}()
	return watcher{changed, func() { _ = f.Close() }}
}

func pollDir() watcher {
	ticker, stop := time.NewTicker(pollPeriod), make(chan struct{})
	changed := make(chan struct{}, 1)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				wake(changed)
			}
		}
	}()
	return watcher{changed, func() { close(stop) }}
}

func wake(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
