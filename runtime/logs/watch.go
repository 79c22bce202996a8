package logs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollPeriod is how often a log is read where the kernel does not report changes.
const pollPeriod = 200 * time.Millisecond

// watcher reports changes in a directory, or that it is time to look for some.
type watcher struct {
	changed <-chan struct{} // holds at most one value
	tick    <-chan time.Time
	close   func()
}

// watchDir watches the directory by inotify. It polls when the user has no watches left or the
// file system does not support them.
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
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return watcher{changed: changed, close: func() { _ = f.Close() }}
}

func pollDir() watcher {
	ticker := time.NewTicker(pollPeriod)
	return watcher{tick: ticker.C, close: ticker.Stop}
}
