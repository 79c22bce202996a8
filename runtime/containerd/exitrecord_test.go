package containerd

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// TestUpdateRecord: whichever of start and exit is recorded first, both are known afterwards, and an
// exit is never lost.
func TestUpdateRecord(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC().Truncate(time.Second)
	start := protocol.Record{ContainerID: "c", StartedAt: at}
	exit := protocol.Record{ContainerID: "c", ExitCode: 3, StartedAt: at.Add(-time.Second), FinishedAt: at.Add(time.Second)}
	for name, news := range map[string][]protocol.Record{"start first": {start, exit}, "exit first": {exit, start}} {
		e, path := &Engine{}, filepath.Join(t.TempDir(), "c.json")
		var got protocol.Record
		for _, r := range news {
			var err error
			if got, err = e.updateRecord(path, r); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := protocol.Read(path)
		if err != nil || kept != got {
			t.Errorf("%s: kept %+v, %v; returned %+v", name, kept, err, got)
		}
		if !got.Ended() || got.ExitCode != 3 || got.StartedAt.IsZero() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
