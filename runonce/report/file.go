package report

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Writable says before anything starts why a report could not be written after.
func Writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// WriteFile writes a report to a file, if there is one to be.
func WriteFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("writing report %s: %w", path, err)
	}
	return nil
}
