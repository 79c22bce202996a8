package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// codecs encode and decode what clients and the server say.
type codecs struct {
	scheme *runtime.Scheme
	types  []runtime.SerializerInfo
	decode runtime.Decoder
	strict runtime.Decoder // which has an error beside an object with fields that do not exist
}

func newCodecs() codecs {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, eventsv1.AddToScheme, policyv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, metricsv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme)) // which is a fault of this program
	}
	for _, gv := range []schema.GroupVersion{v1.SchemeGroupVersion, metav1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(scheme, gv) // clients send the options of either
	}
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	factory := serializer.NewCodecFactory(scheme)
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	return codecs{scheme, factory.SupportedMediaTypes(), factory.UniversalDeserializer(), strict.UniversalDeserializer()}
}

// streamed returns the types in which there can be streams.
func (c codecs) streamed() codecs {
	c.types = slices.DeleteFunc(slices.Clone(c.types), func(info runtime.SerializerInfo) bool { return info.StreamSerializer == nil })
	return c
}

// representation is what clients can have of an object.
type representation int

const (
	whole representation = iota
	table
	metadata
)

// format is how an answer is written.
type format struct {
	info runtime.SerializerInfo
	as   representation
}

// accepted returns the format of the answer that the client likes best, of those that there are. all is set if objects
// are asked for, which have other representations (k8s.io/apiserver/pkg/endpoints/handlers/negotiation).
func (c codecs) accepted(r *http.Request, all bool) (format, error) {
	header := r.Header.Get("Accept")
	if header == "" {
		header = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		info, ok := c.info(clause)
		as, known := representationOf(clause, info)
		if ok && known && (all || as == whole) {
			return format{info, as}, nil
		}
	}
	return format{}, c.notAcceptable("")
}

// acceptedStream is accepted for a stream of objects.
func (c codecs) acceptedStream(r *http.Request) (format, error) {
	if _, err := c.accepted(r, true); err != nil {
		return format{}, err
	}
	streamed := c.streamed()
	f, err := streamed.accepted(r, true)
	if err != nil {
		err = streamed.notAcceptable(streamParameter)
	}
	return f, err
}

// streamParameter is that of the media type of a stream.
const streamParameter = ";stream=watch"

// notAcceptable is the error for a client that accepts nothing that there is.
func (c codecs) notAcceptable(parameter string) error {
	names := make([]string, 0, len(c.types))
	for _, info := range c.types {
		names = append(names, info.MediaType+parameter)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(names, ", "),
	}}
}

// info returns how the media types of the clause are written.
func (c codecs) info(clause goautoneg.Accept) (runtime.SerializerInfo, bool) {
	i := slices.IndexFunc(c.types, func(info runtime.SerializerInfo) bool { // JSON is the first one
		return (clause.Type == "*" || clause.Type == info.MediaTypeType) && (clause.SubType == "*" || clause.SubType == info.MediaTypeSubType)
	})
	if i < 0 {
		return runtime.SerializerInfo{}, false
	}
	return c.types[i], true
}

func representationOf(clause goautoneg.Accept, info runtime.SerializerInfo) (as representation, known bool) {
	text := clause.Params["as"]
	if text == "" {
		return whole, true
	}
	if clause.Params["g"] != metav1.GroupName || clause.Params["v"] != "v1" {
		return whole, false
	}
	switch text {
	case "Table":
		return table, info.MediaType != runtime.ContentTypeProtobuf // it has no such encoding
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return metadata, true
	}
	return whole, false
}

// withKind returns a copy of the object that says what kind it is.
func (c codecs) withKind(o runtime.Object) runtime.Object {
	kinds, _, err := c.scheme.ObjectKinds(o)
	if err != nil {
		return o
	}
	o = shallow(o)
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	return o
}

// write answers with an object.
func (s *server) write(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) {
	f, err := s.codecs.accepted(r, false)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeAs(w, r, f, code, o)
}

func (s *server) writeAs(w http.ResponseWriter, r *http.Request, f format, code int, o runtime.Object) {
	var text bytes.Buffer
	encoder := f.info.Serializer
	if f.info.PrettySerializer != nil && wantsPretty(r) {
		encoder = f.info.PrettySerializer
	}
	if err := encoder.Encode(s.codecs.withKind(o), &text); err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", f.info.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // the client may have gone
}

// wantsPretty says whether a person reads the answer (isPrettyPrint of k8s.io/apiserver/pkg/endpoints/handlers/negotiation).
func wantsPretty(r *http.Request) bool {
	if text := r.URL.Query().Get("pretty"); text != "" {
		pretty, _ := strconv.ParseBool(text)
		return pretty
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// writePlain answers with what is no object.
func (s *server) writePlain(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	}
	_, _ = w.Write(text)
}

// statusOf returns what the client gets of an error.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return known.Status()
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// fail answers with an error, as a Status.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	s.Log.DebugContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "code", status.Code, "error", err)
	f, nerr := s.codecs.accepted(r, false)
	if nerr != nil {
		f = format{info: s.codecs.types[0]}
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	s.writeAs(w, r, f, int(status.Code), &status)
}

var errNoBody = apierrors.NewBadRequest("the request has no body")

// readBody returns the body of a request.
func readBody(r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		if tooLarge := (&http.MaxBytesError{}); errors.As(err, &tooLarge) {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
		}
		return nil, apierrors.NewBadRequest("reading the body of the request: " + err.Error())
	}
	return body.Bytes(), nil
}

// read decodes the body of a request, into an object of the kind unless it says which one it is. The error is errNoBody
// for an empty one.
func (s *server) read(r *http.Request, kind schema.GroupVersionKind) (runtime.Object, error) {
	return decodeBody(r, kind, s.codecs.decode)
}

// decodeBody is read with a decoder. If that is a strict one, there may be an object beside the error.
func decodeBody(r *http.Request, kind schema.GroupVersionKind, decoder runtime.Decoder) (runtime.Object, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, errNoBody
	}
	o, _, err := decoder.Decode(body, &kind, nil)
	if runtime.IsStrictDecodingError(err) {
		return o, err
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("decoding the body of the request: " + err.Error())
	}
	return o, nil
}
