package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/failure"
)

func TestReadConf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file, text string
		wantErr          string
	}{
		{name: "list", file: "a.conflist", text: `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge"}]}`},
		{name: "single plugin", file: "a.conf", text: `{"cniVersion":"0.3.1","name":"own","type":"bridge"}`},
		{name: "list without plugins", file: "a.conflist", text: `{"cniVersion":"1.0.0","name":"own"}`, wantErr: "it has no plugins"},
		{name: "single plugin without a name", file: "a.conf", text: `{"type":"bridge"}`, wantErr: "no name"},
		{name: "not JSON", file: "a.conflist", text: "{", wantErr: "unexpected end of JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), tt.file)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := readConf(path)
			if tt.wantErr != "" {
				if !failure.IsPermanent(err) || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want a permanent one with %q and the file", err, tt.wantErr)
				}
				return
			}
			if err != nil || list.Name != "own" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "bridge" {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}
