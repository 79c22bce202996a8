// Command genopenapi writes the OpenAPI documents of "runonce serve": of those that Kubernetes publishes
// (api/openapi-spec/v3 of its module), the parts that clients need for the kinds that are served. Run it from the root of
// the module:
//
//	go run ./hack/genopenapi runtime/serve/apiserver/openapi/documents.zst
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genopenapi FILE")
		os.Exit(2)
	}
	if err := write(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "genopenapi: %v\n", err)
		os.Exit(1)
	}
}

// write writes the documents into a file, unless they are what it has: another version of the compressor would only
// change how they are compressed.
func write(ctx context.Context, file string) error {
	documents, err := generate(ctx)
	if err != nil {
		return err
	}
	if have, err := unpack(file); err == nil && bytes.Equal(have, documents) {
		return nil
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderCRC(false))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, z.EncodeAll(documents, nil), 0o644); err != nil {
		return fmt.Errorf("writing the documents: %w", err)
	}
	return nil
}

// unpack returns the documents of a file.
func unpack(file string) ([]byte, error) {
	packed, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the documents: %w", err)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(packed, nil)
}

// generate returns the documents, each as a line with its path below /openapi/v3, a space, and its JSON.
func generate(ctx context.Context) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	c.Stderr = os.Stderr
	dir, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("finding Kubernetes: %w", err)
	}
	var lines bytes.Buffer
	for _, s := range served() {
		name := strings.ReplaceAll(s.path, "/", "__") + "_openapi.json"
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "api", "openapi-spec", "v3", name))
		if err != nil {
			return nil, fmt.Errorf("reading what Kubernetes publishes: %w", err)
		}
		var d document
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := d.reduce(s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		lines.WriteString(s.path + " ")
		e := json.NewEncoder(&lines) // its output ends with a newline, and has no other
		e.SetEscapeHTML(false)
		if err := e.Encode(d); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return lines.Bytes(), nil
}
