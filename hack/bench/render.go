package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recordFile is the measurement that the documents show, and later ones are compared with.
const recordFile = "docs/benchmarks.json"

// The tables stand between these lines of the document.
const (
	tablesBegin = "<!-- tables: made from benchmarks.json by make docs -->\n\n"
	tablesEnd   = "\n<!-- end of the tables -->\n"
)

// render writes the tables of a record into the document beside it, and its plot.
func render(file string) error {
	r, err := readRecord(file)
	if err != nil {
		return err
	}
	document := strings.TrimSuffix(file, filepath.Ext(file)) + ".md"
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	if text, err = r.into(text); err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	if err := os.WriteFile(document, text, 0o644); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	if err := os.WriteFile(strings.TrimSuffix(file, filepath.Ext(file))+".svg", r.plot(), 0o644); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// into replaces the tables in a document.
func (r record) into(text []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(text, []byte(tablesBegin))
	_, after, ends := bytes.Cut(rest, []byte(tablesEnd))
	if !begins || !ends {
		return nil, fmt.Errorf("there is no place for the tables, %q to %q", strings.TrimSpace(tablesBegin), strings.TrimSpace(tablesEnd))
	}
	var tables bytes.Buffer
	if err := r.markdown(&tables); err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{before, []byte(tablesBegin), tables.Bytes(), []byte(tablesEnd), after}, nil), nil
}
