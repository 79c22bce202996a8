package protocol

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podusage"
)

func TestOutputTravelsAsText(t *testing.T) {
	t.Parallel()
	for _, want := range []Output{
		{LogPath: "/var/log/pods/a_b_c/d/0.log", RecordPath: "/var/lib/runonce/containers/x.json"},
		{LogPath: "/with space/and?query=1&%41#x.log", RecordPath: "/r&=?%/x.json"},
		{LogPath: "/only/log"},
	} {
		got, ok := ParseOutput(want.URI())
		if !ok || got != want {
			t.Errorf("%+v became %+v, %v", want, got, ok)
		}
	}
	for _, other := range []string{"", "/a/fifo", "file:///x", "binary:///x?runonce-logger=/y", "%zz"} {
		if got, ok := ParseOutput(other); ok {
			t.Errorf("%q became %+v", other, got)
		}
	}
}

func TestRecordIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if err := Reserve(path); err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, want := range []Record{
		{ContainerID: "a", StartedAt: begin},
		{ContainerID: "a", StartedAt: begin, FinishedAt: begin.Add(time.Second), ExitCode: 137, OOMKilled: true},
		{ContainerID: "a", StartedAt: begin, FinishedAt: begin, Usage: podusage.Total{CPUSeconds: new(1.5), OOMKills: new(int64)}},
	} {
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got.Ended() != !want.FinishedAt.IsZero() {
			t.Errorf("ended: %v", got.Ended())
		}
	}
	// Records of containers whose shim is an older one do not have it.
	old := `{"containerID":"a","startedAt":"2026-01-02T03:04:05Z","finishedAt":"2026-01-02T03:04:06Z","exitCode":1}`
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || got.Usage != (podusage.Total{}) || got.ExitCode != 1 {
		t.Errorf("an older record: %+v, %v", got, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("broken: %v", err)
	}
}
