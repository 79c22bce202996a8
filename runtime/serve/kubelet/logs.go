package kubelet

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/logs"
)

// stallTimeout is how long a client may take to read what it is sent of a log.
const stallTimeout = 10 * time.Minute

// logRequest is what of a log is asked for, as in v1.PodLogOptions.
type logRequest struct {
	logs.Options
	follow, previous bool
	limit            int64  // bytes; -1 for none
	stream           string // "" for all
}

// parseLogRequest reads the parameters of a request. It refuses what the API server does (ValidatePodLogOptions).
func parseLogRequest(q url.Values, now time.Time) (r logRequest, err error) {
	r.limit, r.follow, r.previous, r.Timestamps = -1, IsSet(q, "follow"), IsSet(q, "previous"), IsSet(q, "timestamps")
	if err := r.parseAmounts(q, now); err != nil {
		return r, err
	}
	switch stream := q.Get("stream"); stream {
	case "", "All":
	case "Stdout", "Stderr":
		if r.Tail != nil {
			return r, errors.New("tailLines and stream are mutually exclusive")
		}
		r.stream = stream
	default:
		return r, fmt.Errorf("stream: %q is none of All, Stdout, Stderr", stream)
	}
	return r, nil
}

// parseAmounts reads how much of the log is asked for.
func (r *logRequest) parseAmounts(q url.Values, now time.Time) error {
	number := func(name string, least int64) (int64, bool, error) {
		text := q.Get(name)
		if text == "" {
			return 0, false, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil && n < least {
			err = fmt.Errorf("%d is less than %d", n, least)
		}
		if err != nil {
			return 0, false, fmt.Errorf("%s: %w", name, err)
		}
		return n, true, nil
	}
	tail, hasTail, err := number("tailLines", 0)
	if hasTail {
		r.Tail = new(int(tail))
	}
	limit, limited, limitErr := number("limitBytes", 1)
	if limited {
		r.limit = limit
	}
	seconds, since, sinceErr := number("sinceSeconds", 1)
	if since {
		r.Since = now.Add(-time.Duration(min(seconds, longest)) * time.Second)
	}
	if err := errors.Join(err, limitErr, sinceErr); err != nil {
		return err
	}
	if text := q.Get("sinceTime"); text != "" {
		if since {
			return errors.New("at most one of sinceTime or sinceSeconds may be specified")
		}
		if r.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("sinceTime: %w", err)
		}
	}
	return nil
}

// longest is the longest duration, in seconds.
const longest = int64(math.MaxInt64 / time.Second)

// IsSet says whether a parameter is true, as the API machinery does (Convert_Slice_string_To_bool): any text that does not
// say otherwise is.
func IsSet(q url.Values, name string) bool {
	text := strings.ToLower(q.Get(name))
	return q.Has(name) && text != "false" && text != "0"
}

// containerLogs answers with the log of a container.
func (s *server) containerLogs(w http.ResponseWriter, r *http.Request) {
	pod, container, ok := s.container(w, r)
	if !ok {
		return
	}
	request, err := parseLogRequest(r.URL.Query(), time.Now())
	if err != nil {
		s.fail(w, r, http.StatusUnprocessableEntity, err)
		return
	}
	path, err := s.Runtime.Log(r.Context(), pod, container, request.previous)
	if err != nil {
		s.fail(w, r, http.StatusBadRequest, err)
		return
	}
	out := &logWriter{to: w, limit: request.limit, control: http.NewResponseController(w)}
	sinks := logs.Sinks{Stdout: out, Stderr: out}
	switch request.stream {
	case "Stdout":
		sinks.Stderr = nil
	case "Stderr":
		sinks.Stdout = nil
	}
	w.Header().Set("Content-Type", "text/plain")
	if request.follow {
		out.flush() // the client learns that it is connected
		err = s.Runtime.FollowLog(r.Context(), pod, runtime.FollowedLog{Path: path}, sinks, request.Options)
	} else {
		err = logs.Read(r.Context(), path, sinks, request.Options)
	}
	switch {
	case err == nil, errors.Is(err, errLimit), r.Context().Err() != nil:
	case !out.begun:
		s.fail(w, r, http.StatusInternalServerError, err)
	default:
		s.Log.DebugContext(r.Context(), "sending a log failed", "path", path, "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for the end
	}
}

// errLimit says that all that was asked for has been written.
var errLimit = errors.New("limit reached")

// logWriter sends what is written at once.
type logWriter struct {
	to      io.Writer
	control *http.ResponseController
	limit   int64 // of bytes that may still be written; -1 for no limit
	begun   bool
}

func (l *logWriter) Write(data []byte) (int, error) {
	n := len(data)
	if l.limit >= 0 {
		data = data[:min(int64(n), l.limit)]
		l.limit -= int64(len(data))
	}
	l.begun = true
	_ = l.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // an error is one of the write, too
	if _, err := l.to.Write(data); err != nil {
		return 0, err
	}
	l.flush()
	_ = l.control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, also if nothing is to be written
	if l.limit == 0 {
		return n, errLimit
	}
	return n, nil
}

func (l *logWriter) flush() {
	l.begun = true
	_ = l.control.Flush() // an error is one of the next write, too
}
