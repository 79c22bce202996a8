package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in, out string
		code          int // -1 for none
	}{
		{"passed", "PASS\r\nok\t./a\t1.0s\r\nvm: exit code 0\r\n", "PASS\nok\t./a\t1.0s\n", 0},
		{"failed", "FAIL\r\nvm: exit code 1\r\n", "FAIL\n", 1},
		{"nothing ran", noTests + "\r\nPASS\r\nvm: exit code 0\r\n", noTests + "\nPASS\n", 1},
		{"ended early", "=== RUN   TestA\r\n", "=== RUN   TestA\n", -1},
		{"no last line", "half", "half\n", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code, err := relay(strings.NewReader(c.in), &out)
			if err != nil {
				t.Fatal(err)
			}
			got := -1
			if code != nil {
				got = *code
			}
			if got != c.code || out.String() != c.out {
				t.Errorf("code %d and %q, want %d and %q", got, out.String(), c.code, c.out)
			}
		})
	}
}

func TestCpio(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := cpio{w: &out}
	for _, err := range []error{c.directory("dev"), c.device("dev/console", 5, 1), c.file("init", 0o755, []byte("hello")), c.end()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for b := out.Bytes(); len(b) > 0; {
		var f [13]int
		if !bytes.HasPrefix(b, []byte("070701")) {
			t.Fatalf("no header at %q", b)
		}
		for i := range f {
			if _, err := fmt.Sscanf(string(b[6+8*i:14+8*i]), "%08X", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		mode, size, major, minor, length := f[1], f[6], f[9], f[10], f[11]
		name := string(b[110 : 110+length-1])
		begin := (110 + length + 3) &^ 3
		got = append(got, fmt.Sprintf("%s %o %d:%d %s", name, mode, major, minor, b[begin:begin+size]))
		b = b[(begin+size+3)&^3:]
	}
	want := []string{"dev 40755 0:0 ", "dev/console 20600 5:1 ", "init 100755 0:0 hello", "TRAILER!!! 0 0:0 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestModulesAreNamedAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	if got := moduleName("nf-log-syslog"); got != "nf_log_syslog" {
		t.Error(got)
	}
	if _, err := findModules(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no module virtio_pci") {
		t.Errorf("without modules: %v", err)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	own := func(machine string) string {
		n := 0
		for _, s := range suites(false) {
			if slices.Contains(s.in, machine) {
				n++
			}
		}
		return fmt.Sprintf("%s: %d default suites", machine, n)
	}
	for _, c := range []struct {
		name, machines string
		args           []string
		want           []string
		wantErr        string
	}{
		{name: "default suites in all machines", want: []string{own("plain"), own("systemd"), own("systemd-v1")}},
		{name: "default suites in one", machines: "systemd", want: []string{own("systemd")}},
		{name: "suites in the plain machine", args: []string{"./a=^TestA$", "./b"}, want: []string{"plain: ./a ^TestA$, ./b "}},
		{
			name: "suites in two", machines: "systemd-v1,systemd", args: []string{"./a=x=y"},
			want: []string{"systemd: ./a x=y", "systemd-v1: ./a x=y"},
		},
		{name: "another architecture", machines: "arm64", args: []string{"./a"}, want: []string{"arm64: ./a "}},
		{name: "unknown machine", machines: "systemd,v1", wantErr: `unknown machine "v1": must be one of plain, systemd, systemd-v1, arm64`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			todo, err := choose(c.machines, suites(false), c.args)
			if fmt.Sprint(err) != c.wantErr && (err != nil || c.wantErr != "") {
				t.Fatalf("error %v, want %q", err, c.wantErr)
			}
			var got []string
			for _, w := range todo {
				line := fmt.Sprintf("%s: %d default suites", w.kind.name, len(w.suites))
				if len(c.args) > 0 {
					var list []string
					for _, s := range w.suites {
						list = append(list, s.dir+" "+s.run)
					}
					line = w.kind.name + ": " + strings.Join(list, ", ")
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A suite for an unknown machine would never run.
func TestSuitesRunSomewhere(t *testing.T) {
	t.Parallel()
	for _, s := range suites(true) {
		for _, machine := range s.in {
			if !slices.Contains(names(kinds()), machine) {
				t.Errorf("%s %s: no machine %q", s.dir, s.run, machine)
			}
		}
		if len(s.in) == 0 {
			t.Errorf("%s %s runs in no machine", s.dir, s.run)
		}
	}
}

// A story that does not exist would never run.
func TestStoriesExist(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Split(kernelStories+"|"+moreStories, "|") {
		if _, err := os.Stat(filepath.Join("../../testdata/cases", name+".txtar")); err != nil {
			t.Error(err)
		}
	}
}
