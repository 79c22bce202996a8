package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "figures.json")
	r := record{Commit: "abc", Rows: []row{
		{Net: netHost, Pods: 1, Variant: floorName, Wall: figure{Median: 0.1}, CPU: figure{Median: 0.1}},
		{Net: netHost, Pods: 30, Variant: floorName, Wall: figure{Median: 1.2}, CPU: figure{Median: 1.5}},
	}}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	document := strings.TrimSuffix(file, ".json") + ".md"
	if err := os.WriteFile(document, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := render(file); err == nil || !strings.Contains(err.Error(), "there is no place for the tables") {
		t.Errorf("a document without a place: %v", err)
	}
	if err := os.WriteFile(document, []byte("before\n"+tablesBegin+"old"+tablesEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time finds what the first has written
		if err := render(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.Contains(s, "commit abc") || !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "after\n") || strings.Contains(s, "old") {
		t.Errorf("the document is\n%s", s)
	}
	plot, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(plot), ">30 pods<") || strings.Count(string(plot), "<circle") != 4 {
		t.Errorf("the plot is\n%s", plot)
	}
	for d := xml.NewDecoder(strings.NewReader(string(plot))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the plot is not valid: %v", err)
		}
	}
}

func TestTick(t *testing.T) {
	t.Parallel()
	for most, want := range map[float64]float64{164: 50, 90: 20, 37: 10, 1300: 500, 0.9: 0.2} {
		if got := tick(most); got != want {
			t.Errorf("tick(%v) = %v, want %v", most, got, want)
		}
	}
}
