package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestParseSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "from file\n", "large": strings.Repeat("x", v1.MaxSecretSize+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		text, credentials, namespace, name, key, value, err string
	}{
		{text: "db=file:TMP/token", name: "db", key: "token", value: "from file\n"},
		{text: "db:password=file:TMP/token", name: "db", key: "password", value: "from file\n"},
		{text: "team/db.main:pass_word=env:TOKEN", namespace: "team", name: "db.main", key: "pass_word", value: "a=b"},
		{text: "db=env:EMPTY", name: "db", key: "EMPTY"},
		{text: "db=credential:token", credentials: dir, name: "db", key: "token", value: "from file\n"},
		{text: "db=credential:../token", credentials: dir, name: "db", key: "token", err: "the name of a credential has no slash"},
		{text: "db=credential:token", name: "db", key: "token", err: "systemd has passed no credentials: $CREDENTIALS_DIRECTORY is not set; use LoadCredential=token:PATH in the unit"},
		{text: "db=env:NOSUCH", name: "db", key: "NOSUCH", err: "the environment variable NOSUCH is not set"},
		{text: "db=file:TMP/large", name: "db", key: "large", err: "TMP/large is larger than a Secret may be, 1 MiB"},
		{text: "db=file:TMP/nosuch", name: "db", key: "nosuch", err: "open TMP/nosuch: no such file or directory"},
	} {
		c := &console{io: IO{
			Environ: func() []string { return []string{"TOKENS=x", "TOKEN=a=b", "EMPTY="} },
			Getenv:  func(string) string { return tt.credentials },
		}}
		at := strings.NewReplacer("TMP", dir)
		k, err := c.parseSecret(at.Replace(tt.text))
		if err != nil || k.Namespace != tt.namespace || k.Name != tt.name || k.Key != tt.key {
			t.Errorf("%s: %+v, %v", tt.text, k, err)
			continue
		}
		value, err := k.Read()
		if tt.err != "" && (err == nil || err.Error() != at.Replace(tt.err)) || tt.err == "" && (err != nil || string(value) != tt.value) {
			t.Errorf("%s: %q, %v", tt.text, value, err)
		}
	}
	for _, text := range []string{"db", "db=s3cret", "=file:s3cret", "db:=file:s3cret", "a/b/c=file:s3cret", "db=env:", "db=vault:s3cret"} {
		if _, err := (&console{}).parseSecret(text); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
