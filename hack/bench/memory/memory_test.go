package memory

import (
	"os"
	"testing"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	most := Watch(os.Getpid())
	big := make([]byte, 64<<20)
	for i := range big {
		big[i] = byte(i)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	memory, files := most()
	if memory < int64(len(big)) {
		t.Errorf("%d bytes, of which %d were written", memory, len(big))
	}
	if files > 0 && files < 4 {
		t.Errorf("%d open files", files)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if Of(-1) != 0 {
		t.Error("memory of no process")
	}
}
