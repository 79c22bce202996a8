package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/internal/failure"
)

func TestReadSeccomp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"deny.json": `{"defaultAction":"SCMP_ACT_ERRNO"}`, "bad.json": `{"defaultAction":`, "empty.json": `{}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadSeccomp(dir, "deny.json")
	if err != nil || got.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("profile = %+v, %v", got, err)
	}
	for _, name := range []string{"bad.json", "empty.json", "none.json", "../" + filepath.Base(dir) + "/deny.json"} {
		_, err := ReadSeccomp(dir, name)
		if err == nil || !failure.IsPermanent(err) || failure.Reason(err, "") != failure.ReasonCreateError {
			t.Errorf("%s: %v, want a permanent %s", name, err, failure.ReasonCreateError)
		}
	}
	if _, err := ReadSeccomp(dir, "none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v: does not end in the cause", err)
	}
}
