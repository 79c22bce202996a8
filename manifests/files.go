package manifests

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/runonce/runonce/manifests/decode"
)

// fileReader reads one file while others are read, too.
type fileReader struct {
	*reader
	inputFile
	alone bool
	done  chan []*entry
}

// maxFiles bounds the files that are read ahead of the one whose entries come next.
const maxFiles = 64

// file reads the documents of a file and does all that does not depend on others. Small files are
// read in parallel, large ones alone.
func (r *reader) file(ctx context.Context, f inputFile) {
	alone, ahead := f.size < 0 || f.size >= decode.LargeFile, maxFiles-1
	if alone {
		r.finish(ctx, 0)
		ahead = 0
	}
	next := &fileReader{r, f, alone, make(chan []*entry, 1)}
	r.files = append(r.files, next)
	go func() {
		r.slots <- struct{}{}
		next.done <- next.read()
		<-r.slots
	}()
	r.finish(ctx, ahead)
}

// finish takes the entries of files in the order of the input, and does what depends on the
// documents before each, until no more than a number of files are left.
func (r *reader) finish(ctx context.Context, left int) {
	for len(r.files) > left {
		entries, ok := r.files[0].wait(ctx)
		if r.files = r.files[1:]; !ok {
			r.files = nil // one error says it all
		}
		for _, e := range entries {
			if e.rest != nil {
				e.rest()
				e.rest = nil
			}
		}
		r.entries = append(r.entries, entries...)
		r.collectLess()
	}
}

// collecting says that a reader has changed how often garbage is collected.
var collecting atomic.Bool

// collectLess halves the garbage collections of the process while many documents are read: what is
// read stays, and need not be looked through again and again. "validate" of 2,000 pods takes 3 to 9 %
// less CPU time, and 8 to 12 MiB more memory.
func (r *reader) collectLess() {
	const many, percent = 1_000, 200
	if len(r.entries) < many || !collecting.CompareAndSwap(false, true) {
		return
	}
	before := debug.SetGCPercent(percent)
	if before < 0 || before > percent {
		debug.SetGCPercent(before) // the user wants less
	}
	r.collectAgain = func() {
		debug.SetGCPercent(before)
		collecting.Store(false)
	}
}

// wait returns the entries of the file, or false and an error. It returns when ctx is done, although the file may be read
// on until it is closed or the process ends: a pipe or a file like /proc/kmsg may take for ever.
func (f *fileReader) wait(ctx context.Context) ([]*entry, bool) {
	select {
	case entries := <-f.done:
		return entries, true
	case <-ctx.Done():
		return f.entriesOf(failed(f.name, context.Cause(ctx).Error(), "").problems), false
	}
}

// entriesOf returns the entry of a file that is not read.
func (f *fileReader) entriesOf(problems Diagnostics) []*entry {
	return []*entry{{doc: decode.Document{File: f.name}, path: f.path, problems: problems}}
}

// read returns the entries of the file, sorted by their documents.
func (f *fileReader) read() []*entry {
	if f.open != nil {
		f.data, f.problems = f.open()
	}
	if len(f.problems) > 0 {
		return f.entriesOf(f.problems)
	}
	if f.remote {
		f.data = append(f.data, '\n') // it is whole: HTTP says where the content ends
	}
	docs, problems := decode.SplitWith(f.name, f.data, f.options.Variables)
	f.data = nil
	entries := make([]*entry, 0, len(docs))
	at := make(map[position]*entry, len(docs))
	for _, doc := range docs {
		e := &entry{doc: doc, kind: doc.ObjectKind(), remote: f.remote, path: f.path}
		e.namespace, e.name = doc.Text("metadata.namespace"), doc.Text("metadata.name")
		at[position{doc.Index, doc.Prefix}] = e
		entries = append(entries, e)
	}
	var others []*entry
	for _, p := range problems {
		if e := owner(at, p); e != nil {
			e.problems = append(e.problems, p)
			continue
		}
		doc := decode.Document{File: p.File, Index: p.Document, Start: p.Line}
		others = append(others, &entry{doc: doc, path: f.path, problems: Diagnostics{p}})
	}
	f.load(entries)
	entries = append(entries, others...)
	if len(entries) == 0 {
		return f.entriesOf(Diagnostics{{File: f.name, Message: "has no documents", Severity: SeverityWarning}})
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.doc.Index, b.doc.Index) })
	return entries
}

// load loads the entries, in parallel if the file is read alone.
func (f *fileReader) load(entries []*entry) {
	load := func(i int) { entries[i].rest = f.reader.load(entries[i]) }
	if f.alone && !slices.ContainsFunc(entries, func(e *entry) bool { return e.doc.Aliased }) {
		decode.InParallel(len(entries), load)
		return
	}
	for i := range entries {
		load(i)
	}
}
