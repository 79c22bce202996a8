package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rescan is how long the list of records is taken to be current. A process that was killed, or an earlier version of
// this program, may have changed a record without saying so.
const rescan = time.Second

// listing is the list of all records as it was last read and changed by this process. It spares a look at every
// record for every pod that starts. The fields are guarded by Store.mu.
type listing struct {
	pods []*Pod // in order of compare; nil when it is not known
	at   uint64 // its generation
	read time.Time
	lock *os.File // while this process holds it
}

// compare orders records by namespace, name and UID.
func compare(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
}

// generation returns the number that is in the file of the lock, another one after each change of a record; zero if
// there is none.
func (s *Store) generation() uint64 {
	if s.all.lock != nil {
		return generationIn(s.all.lock)
	}
	f, err := os.Open(filepath.Join(s.root, writeLock))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	return generationIn(f)
}

func generationIn(lock *os.File) uint64 {
	var at [8]byte
	_, _ = lock.ReadAt(at[:], 0) // a new file is empty
	return binary.LittleEndian.Uint64(at[:])
}

// current reports whether the list is right, if that is the generation now.
func (l *listing) current(at uint64) bool {
	return l.pods != nil && at != 0 && l.at == at && time.Since(l.read) < rescan
}

// changed takes over a record that this process has just written, and tells the others that one was.
func (l *listing) changed(p *Pod) {
	l.change(func() {
		if i, found := slices.BinarySearchFunc(l.pods, p, compare); found {
			l.pods[i] = p
		} else {
			l.pods = slices.Insert(l.pods, i, p)
		}
	})
}

// removed is changed for a record that is gone.
func (l *listing) removed(uid types.UID) {
	l.change(func() {
		l.pods = slices.DeleteFunc(l.pods, func(p *Pod) bool { return p.Pod.UID == uid })
	})
}

func (l *listing) change(take func()) {
	at := generationIn(l.lock)
	if l.pods != nil && at == l.at {
		take()
	} else {
		l.pods = nil // others have changed some, too
	}
	l.at = at + 1
	if setGeneration(l.lock, l.at) != nil {
		l.pods = nil // on a full disk: others see it when they look again
	}
}

func setGeneration(lock *os.File, at uint64) error {
	_, err := lock.WriteAt(binary.LittleEndian.AppendUint64(nil, at), 0)
	return err
}

// forgetList has this process, and the others, look at every record again, after a change that needed no lock.
func (s *Store) forgetList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.pods = nil
	if f, err := os.OpenFile(filepath.Join(s.root, writeLock), os.O_WRONLY, 0); err == nil {
		_ = errors.Join(setGeneration(f, rand.Uint64()), f.Close())
	}
}
