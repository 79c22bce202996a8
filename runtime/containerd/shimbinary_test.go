package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// embeddedShim is an embedded file system that carries body as the shim.
func embeddedShim(t *testing.T, body string) (fstest.MapFS, protocol.Sum) {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(body))
	sum := protocol.Sum{SHA256: hex.EncodeToString(hash[:]), Size: int64(len(body))}
	return fstest.MapFS{
		"shim/" + protocol.PackedName: {Data: w.EncodeAll([]byte(body), nil)},
		"shim/" + protocol.SumName:    {Data: []byte(sum.String())},
	}, sum
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	const body = "#!/bin/sh\nexit 0\n"
	from, sum := embeddedShim(t, body)
	bin := t.TempDir()
	path, err := unpack(from, bin)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(bin, sum.SHA256, protocol.Program); path != want {
		t.Errorf("path %q, want %q", path, want)
	}
	check := func() {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != body {
			t.Errorf("%q, %v", got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
			t.Errorf("%v, %v", info, err)
		}
		if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
			t.Errorf("%v, %v", files, err)
		}
	}
	check()

	// A complete program is used as it is, and one that a crash left incomplete is replaced.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(from, bin); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was unpacked again: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(from, bin); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestUnpackRefusesDamage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage func(fstest.MapFS)
		want   string
	}{
		{"another program", func(m fstest.MapFS) {
			other, _ := embeddedShim(t, "other")
			m["shim/"+protocol.PackedName] = other["shim/"+protocol.PackedName]
		}, "SHA-256"},
		{"no zstd", func(m fstest.MapFS) { m["shim/"+protocol.PackedName].Data = []byte("rubbish") }, "unpacking the shim"},
		{"no program", func(m fstest.MapFS) { delete(m, "shim/"+protocol.PackedName) }, "reading the embedded shim"},
		{"no sum", func(m fstest.MapFS) { m["shim/"+protocol.SumName].Data = []byte("x") }, "checksum"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			from, sum := embeddedShim(t, "program")
			tc.damage(from)
			bin := t.TempDir()
			if _, err := unpack(from, bin); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(filepath.Join(bin, sum.SHA256, protocol.Program)); err == nil {
				t.Error("the damaged program is there")
			}
		})
	}
}

func TestWithoutAShimTheProgramCopiesItself(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	path, err := unpack(fstest.MapFS{}, bin)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("%d bytes, want %d, %v", len(got), len(want), err)
	}
	if again, err := unpack(fstest.MapFS{}, bin); err != nil || again != path {
		t.Errorf("%q, %v", again, err)
	}
}
