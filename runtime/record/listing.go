package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rescan is how long the list of records is taken to be right, for the sake of an earlier version of this program, which
// does not say when it changes a record.
const rescan = time.Second

// listing is the list of all records as it was last read and changed by this process. It spares a look at every
// record for every pod that starts. The fields are guarded by Store.mu.
type listing struct {
	pods []*Pod // in order of compare; nil when it is not known
	at   moment
	read time.Time
	lock *os.File // while this process holds it
}

// moment says whether records have changed since another one.
type moment struct {
	// generation is in the file of the lock, another one after each change. While a record is changed, it is odd: whoever
	// is told of the change, which may be before it is known to be over, then looks at every record.
	generation uint64
	names      int64 // when a record was added or removed last, in nanoseconds
}

// compare orders records by namespace, name and UID.
func compare(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
}

// now returns the moment of now.
func (s *Store) now() moment {
	now := moment{names: s.names()}
	if s.all.lock != nil {
		now.generation = generationIn(s.all.lock)
	} else if f, err := os.Open(filepath.Join(s.root, writeLock)); err == nil {
		now.generation = generationIn(f)
		_ = f.Close()
	}
	return now
}

// names returns when a record was added or removed last, in nanoseconds.
func (s *Store) names() int64 {
	info, err := os.Stat(filepath.Join(s.root, podsDir))
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}

func generationIn(lock *os.File) uint64 {
	var at [8]byte
	_, _ = lock.ReadAt(at[:], 0) // a new file is empty
	return binary.LittleEndian.Uint64(at[:])
}

func setGeneration(lock *os.File, at uint64) error {
	_, err := lock.WriteAt(binary.LittleEndian.AppendUint64(nil, at), 0)
	return err
}

// right reports whether the list is right.
func (l *listing) right(now moment) bool {
	return l.pods != nil && now == l.at && now.generation != 0 && now.generation%2 == 0 && time.Since(l.read) < rescan
}

// change calls do, which changes a record, and then take to change the list if it is right apart from that.
func (s *Store) change(do func() error, take func()) error {
	before := generationIn(s.all.lock)
	during := before | 1
	err := setGeneration(s.all.lock, during)
	// On a full disk; or another process was killed while it changed one, and nobody knows which; or others have
	// changed some.
	if err != nil || before == during || before != s.all.at.generation {
		s.all.pods = nil
	}
	if err := do(); err != nil {
		s.all.pods = nil
		return err // looking at every record goes on until the next change
	}
	if s.all.pods != nil {
		take()
	}
	s.all.at = moment{generation: during + 1, names: s.names()}
	if setGeneration(s.all.lock, during+1) != nil {
		s.all.pods = nil
	}
	return nil
}

// replace puts a record into the list.
func (l *listing) replace(p *Pod) {
	i, found := slices.BinarySearchFunc(l.pods, p, compare)
	if found {
		l.pods[i] = p
	} else {
		l.pods = slices.Insert(l.pods, i, p)
	}
}

// remove removes a record from the list.
func (l *listing) remove(uid types.UID) {
	l.pods = slices.DeleteFunc(l.pods, func(p *Pod) bool { return p.Pod.UID == uid })
}

// changeUnlocked calls do, which changes a record without the lock.
func (s *Store) changeUnlocked(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.pods = nil
	if f, err := os.OpenFile(filepath.Join(s.root, writeLock), os.O_RDWR, 0); err == nil {
		_ = errors.Join(setGeneration(f, generationIn(f)|1), f.Close())
	}
	return do()
}
