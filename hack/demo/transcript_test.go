package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.md")
	const shown = "POD  OUTCOME  TIME   IP\na    Running  0.67s  192.0.2.2,fd00::2\nb    Running  10s    10.97.0.3\n"
	if err := os.WriteFile(path, []byte("# Demo\n```console\n"+shown+"# The demo has passed.\n```\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		shown: "",
		"POD  OUTCOME  TIME  IP\na    Running  1m2s  10.0.0.7\nb    Running  9s    10.0.0.8\n": "",
		strings.Replace(shown, "b    Running", "b    Failed ", 1):                              `it has "b    Running`,
		shown + "c    Running  1s  10.0.0.9\n":                                                 `instead of "c    Running`,
	} {
		if err := compare(path, output); err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", output, err)
		}
	}
}
