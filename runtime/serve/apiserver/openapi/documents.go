package openapi

import (
	"bytes"
	"crypto/sha512"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// packed has the documents, each on a line of its own after its path below /openapi/v3. Most schemas are in several of
// them, which costs next to nothing since they are compressed together.
//
//go:embed documents.zst
var packed []byte

// document is what is answered for a path.
type document struct {
	text []byte
	etag string
}

func newDocument(text []byte) document {
	return document{text, fmt.Sprintf("%X", sha512.Sum512(text))}
}

// documents are all that there are.
type documents struct {
	index   document
	byGroup map[string]document // by paths like "apis/apps/v1"
}

// load returns the documents. They are unpacked when somebody asks for one, which most runs of the program never do.
var load = sync.OnceValues(func() (documents, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return documents{}, err
	}
	defer z.Close()
	text, err := z.DecodeAll(packed, nil)
	if err != nil {
		return documents{}, fmt.Errorf("unpacking the OpenAPI documents: %w", err)
	}
	all := documents{byGroup: map[string]document{}}
	index := discovery{map[string]discoveryGroup{}}
	for line := range bytes.Lines(text) {
		group, text, _ := bytes.Cut(line, []byte(" "))
		d := newDocument(text)
		all.byGroup[string(group)] = d
		index.Paths[string(group)] = discoveryGroup{location(string(group), d.etag)}
	}
	text, err = json.Marshal(index)
	if err != nil {
		return documents{}, err
	}
	all.index = newDocument(text)
	return all, nil
})

// discovery is the answer to /openapi/v3, OpenAPIV3Discovery of k8s.io/kube-openapi/pkg/handler3.
type discovery struct {
	Paths map[string]discoveryGroup `json:"paths"`
}

type discoveryGroup struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// location returns the URL of a document, which changes when the document does.
func location(group, hash string) string {
	u := url.URL{Path: "/openapi/v3/" + group, RawQuery: url.Values{"hash": {hash}}.Encode()}
	return u.String()
}
