package process

import (
	"bytes"
	"debug/elf"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixed returns this program, if it has a fixed address.
func fixed(t *testing.T) *elf.File {
	t.Helper()
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if program.Type != elf.ET_EXEC || program.Class != elf.ELFCLASS64 {
		t.Skipf("the test is of type %s, class %s", program.Type, program.Class)
	}
	return program
}

// fileMemory returns how much of this process is mapped from files, in KiB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssFile:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("the kernel does not tell")
	return 0
}

// TestDropCode: the program shrinks and still works. It does not run in parallel.
func TestDropCode(t *testing.T) {
	fixed(t)
	before := fileMemory(t)
	DropCode()
	if after := fileMemory(t); after >= before {
		t.Errorf("%d KiB before, %d KiB afterwards", before, after)
	}
}

// TestSegments: they are the segments that are not writable, in whole pages.
func TestSegments(t *testing.T) {
	program := fixed(t)
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var want []uintptr
	for _, p := range program.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 {
			want = append(want, uintptr(p.Vaddr))
		}
	}
	page := uintptr(os.Getpagesize())
	var got []uintptr
	for _, s := range segments(f) {
		got = append(got, s.start)
		if s.start%page != 0 || s.size%page != 0 || s.size == 0 {
			t.Errorf("no whole pages: %+v", s)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Error(diff)
	}
}

// TestNoSegments: what cannot be dropped safely is not.
func TestNoSegments(t *testing.T) {
	fixed(t)
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	movable := bytes.Clone(program[:4096])
	movable[16] = byte(elf.ET_DYN)
	for name, content := range map[string][]byte{
		"empty": nil, "short": program[:70], "no program": []byte(strings.Repeat("#!/bin/sh\n", 100)), "movable": movable,
	} {
		if got := segments(bytes.NewReader(content)); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
