package containerd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want Handler
		err  string
	}{
		{in: "crun=/usr/bin/crun", want: Handler{Name: "crun", Binary: "/usr/bin/crun"}},
		{in: "crun=crun", want: Handler{Name: "crun", Binary: "crun"}},
		{in: "old=io.containerd.runc.v2,BinaryName=/opt/runc", want: Handler{Name: "old", Binary: "/opt/runc"}},
		{in: "plain=io.containerd.runc.v2", want: Handler{Name: "plain"}},
		{in: "kata=io.containerd.kata.v2", want: Handler{Name: "kata", Shim: "io.containerd.kata.v2"}},
		{
			in:   "kata=io.containerd.kata.v2,ConfigPath=/etc/kata.toml,TypeUrl=x",
			want: Handler{Name: "kata", Shim: "io.containerd.kata.v2", ConfigPath: "/etc/kata.toml", TypeURL: "x"},
		},
		{in: "own=/opt/containerd-shim-own-v1", want: Handler{Name: "own", Shim: "/opt/containerd-shim-own-v1"}},
		{in: "own=containerd-shim-own-v1", err: "must be absolute"},
		{in: "crun", err: "must be NAME=TYPE"},
		{in: "=runc", err: "must be NAME=TYPE"},
		{in: "crun=", err: "the type is missing"},
		{in: "crun=/usr/bin/crun,ConfigPath=/x", err: `unknown option "ConfigPath=/x": must be one of BinaryName`},
		{in: "kata=io.containerd.kata.v2,BinaryName=/x", err: "must be one of ConfigPath, TypeUrl"},
	}
	for _, tt := range tests {
		got, err := parseHandler(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.in, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, d)
		}
	}
}

func TestParseAll(t *testing.T) {
	t.Parallel()
	all, err := ParseHandlers([]string{"kata=io.containerd.kata.v2", "crun=/usr/bin/crun"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"crun", "kata", "runc"}, HandlerNames(all)); d != "" {
		t.Error(d)
	}
	if got := all[0].Program(); got != "containerd-shim-kata-v2" {
		t.Errorf("program %q", got)
	}
	if _, err := ParseHandlers([]string{"a=b", "a=c"}); err == nil || !strings.Contains(err.Error(), `handler "a" is given twice`) {
		t.Errorf("error %v", err)
	}
}
