// Package openapi serves the OpenAPI documents of the API, as an API server does (k8s.io/kube-openapi/pkg/handler3):
// "kubectl explain" prints what they say, and "kubectl create" and "kubectl apply" read in them what the server can do.
// They are Kubernetes' own documents with only the kinds that are served, and hack/genopenapi writes them.
package openapi

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const contentTypeJSON = "application/json"

// Handler returns what answers requests for /openapi/v2, /openapi/v3 and the paths below the latter. It is safe for
// concurrent use.
//
// An API server also has the documents of version 3 as protobuf. Here, who accepts nothing else is told so: kubectl and
// the clients of client-go ask for JSON.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi/v2", serveV2)
	mux.HandleFunc("GET /openapi/v3", withDocuments(serveIndex))
	mux.HandleFunc("GET /openapi/v3/{group...}", withDocuments(serveGroup))
	return mux
}

// withDocuments loads the documents for a handler.
func withDocuments(serve func(http.ResponseWriter, *http.Request, documents)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		all, err := load()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		serve(w, r, all)
	}
}

// serveIndex answers with the locations of the documents, as OpenAPIService.HandleDiscovery does.
func serveIndex(w http.ResponseWriter, r *http.Request, all documents) {
	answer(w, r, all.index, contentTypeJSON)
}

// serveGroup answers with a document, as OpenAPIService.HandleGroupVersion does.
func serveGroup(w http.ResponseWriter, r *http.Request, all documents) {
	group := r.PathValue("group")
	d, ok := all.byGroup[group]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Vary", "Accept")
	if accepted(r, contentTypeJSON) == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.etag {
			http.Redirect(w, r, location(group, d.etag), http.StatusMovedPermanently)
			return
		}
		// The URL is that of this very document: there will never be another one there.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	}
	answer(w, r, d, contentTypeJSON)
}

// answer answers with a document, or that the client has it.
func answer(w http.ResponseWriter, r *http.Request, d document, contentType string) {
	w.Header().Set("Etag", strconv.Quote(d.etag))
	w.Header().Set("Content-Type", contentType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.text))
}

// accepted returns the first of some types that the client accepts, "" if there is none. The client's order counts, not
// its weights, since clients name a single type.
func accepted(r *http.Request, types ...string) string {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" {
		return types[0]
	}
	for clause := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(clause, ";")
		name = strings.TrimSpace(name)
		for _, t := range types {
			if name == "*/*" || name == "application/*" || strings.EqualFold(name, t) {
				return t
			}
		}
	}
	return ""
}
