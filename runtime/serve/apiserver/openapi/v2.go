package openapi

import "net/http"

// The type of a document of version 2 as protobuf. What clients ask for is not a valid name of a type, so an API server
// answers with another one (k8s.io/kube-openapi/pkg/handler).
const (
	protobufV2Asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	protobufV2      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// The document of version 2 describes nothing, but there must be one. kubectl asks for it before it creates what has no
// operation PATCH, as a SelfSubjectReview or the List in a file: it fails if there is none, and does not check the fields
// of a kind that the document does not have (k8s.io/kubectl/pkg/validation/validation.go). The server checks them.
const (
	emptyV2 = `{"swagger":"2.0","info":{"title":"Kubernetes","version":"unversioned"},"paths":{}}`
	// The same as a message Document (github.com/google/gnostic-models/openapiv2/OpenAPIv2.proto): swagger is field 1,
	// info field 2, and in the latter title field 1 and version field 2.
	emptyV2Protobuf = "\x0a\x032.0" + "\x12\x19" + "\x0a\x0aKubernetes" + "\x12\x0bunversioned"
)

// serveV2 answers with the document of version 2.
func serveV2(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	switch accepted(r, contentTypeJSON, protobufV2Asked, protobufV2) {
	case contentTypeJSON:
		answer(w, r, newDocument([]byte(emptyV2)), contentTypeJSON)
	case protobufV2Asked, protobufV2:
		answer(w, r, newDocument([]byte(emptyV2Protobuf)), protobufV2)
	default:
		w.WriteHeader(http.StatusNotAcceptable)
	}
}
