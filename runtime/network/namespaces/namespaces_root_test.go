package namespaces

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
)

func TestMakeAndRemove(t *testing.T) {
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "ns")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	kinds := []Kind{Net, IPC, UTS}
	if err := Make(dir, kinds, "inner"); err != nil {
		t.Fatal(err)
	}
	pins := make([]Pin, 0, len(kinds))
	for _, k := range kinds {
		p := Pin{k, filepath.Join(dir, string(k))}
		if !Alive(p) {
			t.Errorf("%s is not alive", p.Path)
		}
		pins = append(pins, p)
	}
	if Alive(Pin{Net, pins[1].Path}) {
		t.Error("an ipc namespace counts as a net namespace")
	}
	wantInside(t, pins)
	if err := Make(dir, kinds, "again"); err == nil {
		t.Error("pins were made over others")
	}
	for range 2 {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Error("mounts are left")
	}
	if Alive(pins[0]) {
		t.Error("a removed pin is alive")
	}
}

func wantInside(t *testing.T, pins []Pin) {
	t.Helper()
	err := Inside(pins, func() error {
		name, err := os.ReadFile("/proc/sys/kernel/hostname")
		if err != nil {
			return err
		}
		if string(name) != "inner\n" {
			t.Errorf("host name %q inside", name)
		}
		state, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		if !strings.Contains(string(state), "lo:") || strings.Contains(string(state), "eth0:") {
			t.Errorf("interfaces inside:\n%s", state)
		}
		for file, want := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"} {
			got, err := os.ReadFile("/proc/sys/net/ipv4/" + file)
			if err != nil {
				return err
			}
			if strings.Join(strings.Fields(string(got)), " ") != want {
				t.Errorf("%s is %q inside, want %q", file, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAliveNeedsANamespace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "net")
	if Alive(Pin{Net, file}) {
		t.Error("nothing is alive")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Alive(Pin{Net, file}) {
		t.Error("a plain file is alive")
	}
}

// The process's own namespaces, which /proc/self shows as those of its main thread, must not
// change.
func TestOwnNamespacesStay(t *testing.T) {
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "ns")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, []Kind{UTS}, "inner"); err != nil {
		t.Fatal(err)
	}
	pins := []Pin{{UTS, filepath.Join(dir, "uts")}}
	before, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if err := Inside(pins, func() error { return nil }); err != nil {
				t.Error(err)
			}
			if now, err := os.Readlink("/proc/self/ns/uts"); err != nil || now != before {
				t.Errorf("the main thread is in %s, %v", now, err)
			}
			if now, err := os.Readlink("/proc/thread-self/ns/uts"); err != nil || now != before {
				t.Errorf("a goroutine is in %s, %v", now, err)
			}
		})
	}
	wg.Wait()
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
}

func TestErrorsGoOut(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	if err := Inside(nil, func() error { return why }); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	err := Inside([]Pin{{Net, filepath.Join(t.TempDir(), "none")}}, func() error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
