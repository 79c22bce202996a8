package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// traffic watches the requests of one pull, and ends it when nothing has arrived for too long
// while a request was under way, as containerd does for the kubelet (image_pull_progress_timeout).
type traffic struct {
	limit  time.Duration // 0 for none
	timer  *time.Timer   // nil without a limit
	mu     sync.Mutex
	active int
	// resumed says that a part of a blob was asked for, whose beginning came with an earlier
	// request.
	resumed bool
	host    string // of the last request
	broken  error  // that has cut off the last answer
	login   login
	bytes   *atomic.Int64 // that have arrived; nil if nobody wants to know
}

// login is what has become of a registry's questions for credentials.
type login int

const (
	notAsked login = iota
	unknown        // it has got none
	loggedIn
)

func (l login) advice() string {
	return [...]string{notAsked: adviceAccess, unknown: adviceLogin, loggedIn: adviceLoggedIn}[l]
}

func (t *traffic) noteLogin(l login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.login = max(t.login, l)
}

// stalledError says that a registry has sent nothing for too long.
type stalledError struct {
	host  string
	limit time.Duration
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("registry %s has sent nothing for %s (--pull-timeout)", e.host, e.limit)
}

// watchTraffic returns a context for a pull, which ends when the pull stalls. end releases it.
func watchTraffic(ctx context.Context, limit time.Duration) (_ context.Context, t *traffic, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t = &traffic{limit: limit}
	if limit > 0 {
		t.timer = time.AfterFunc(limit, func() { cancel(&stalledError{t.lastHost(), limit}) })
		t.timer.Stop()
	}
	return ctx, t, func() {
		if t.timer != nil {
			t.timer.Stop()
		}
		cancel(nil)
	}
}

func (t *traffic) lastHost() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.host
}

// begin notes a request.
func (t *traffic) begin(host string, part bool) {
	t.mu.Lock()
	t.host, t.resumed = host, t.resumed || part
	t.mu.Unlock()
	t.change(1)
}

// arrived notes bytes of an answer.
func (t *traffic) arrived(n int) {
	if t.bytes != nil {
		t.bytes.Add(int64(n))
	}
	t.change(0)
}

// change notes a request that begins (1), ends (-1), or gets on (0).
func (t *traffic) change(by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active += by
	switch {
	case t.timer == nil:
	case t.active > 0:
		t.timer.Reset(t.limit)
	default:
		t.timer.Stop()
	}
}

// transport reports requests to a traffic.
type transport struct {
	next    http.RoundTripper
	traffic *traffic
}

// RoundTrip sends a request. A registry that has too many of them is not asked again at once, as
// containerd's resolver does with such an answer. One that refuses to send a part of a blob is
// asked for all of it, of which containerd ignores what it has.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	part := r.Header.Get("Range") != ""
	t.traffic.begin(r.URL.Host, part)
	resp, err := t.next.RoundTrip(r)
	if err == nil && part && refusesParts(resp.StatusCode) {
		_ = resp.Body.Close()
		whole := r.Clone(r.Context())
		whole.Header.Del("Range")
		resp, err = t.next.RoundTrip(whole)
	}
	if err != nil {
		t.traffic.change(-1)
		return nil, err
	}
	if busy := busyOf(resp, time.Now()); busy != nil {
		_ = resp.Body.Close()
		t.traffic.change(-1)
		return nil, busy
	}
	body := &watchedBody{ReadCloser: resp.Body, canceled: r.Context().Err, traffic: t.traffic}
	if !wantsBlob(r) || resp.StatusCode >= http.StatusMultipleChoices {
		body.most, body.from = maxAnswer, r.URL
	}
	resp.Body = body
	return resp, nil
}

// maxAnswer bounds an answer in bytes that is no blob, such as a manifest or a token: it is read into memory,
// or to its end whatever comes. containerd refuses manifests of half that size, other programs those of
// 4 MiB.
const maxAnswer = 8 << 20

// wantsBlob reports whether a request, or the one that was redirected to it, is for a blob: a layer, which may
// have any size, or a configuration, whose size its manifest says.
func wantsBlob(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	// A reference with the digest of a manifest is also looked for among the blobs.
	return strings.Contains(r.URL.Path, "/blobs/") && !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "manifest")
}

// tooMuchError says that a registry has sent more than anything that it was asked for can have.
type tooMuchError struct{ from *url.URL }

func (e *tooMuchError) Error() string {
	return fmt.Sprintf("registry %s has sent more than %d MiB for %s: only layers may be so large", e.from.Host, maxAnswer>>20, e.from.Path)
}

// Permanent says that it would do so again.
func (e *tooMuchError) Permanent() bool { return true }

func refusesParts(code int) bool {
	return code == http.StatusRequestedRangeNotSatisfiable || code == http.StatusBadRequest || code == http.StatusNotImplemented
}

// watchedBody is the body of a response. A connection that breaks ends it with
// io.ErrUnexpectedEOF, after which containerd asks for the rest.
type watchedBody struct {
	io.ReadCloser
	canceled func() error
	traffic  *traffic
	once     sync.Once
	most     int64 // bytes that may come; 0 for any number
	from     *url.URL
	read     int64
}

// Read reads the body.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.traffic.arrived(n)
	}
	if b.read += int64(n); b.most > 0 && b.read > b.most {
		b.once.Do(func() { b.traffic.change(-1) })
		return n, &tooMuchError{b.from}
	}
	if err != nil {
		b.once.Do(func() { b.traffic.change(-1) })
	}
	if err == nil || errors.Is(err, io.EOF) || b.canceled() != nil {
		return n, err
	}
	b.traffic.mu.Lock()
	defer b.traffic.mu.Unlock()
	b.traffic.broken = err
	return n, io.ErrUnexpectedEOF
}

// Close ends the request.
func (b *watchedBody) Close() error {
	b.once.Do(func() { b.traffic.change(-1) })
	return b.ReadCloser.Close()
}

// busyError is the answer of a registry that asks to come back later.
type busyError struct {
	host, status string
	wait         time.Duration // 0 when it does not say how long
}

func (e *busyError) Error() string {
	if e.wait == 0 {
		return fmt.Sprintf("registry %s responded with %s", e.host, e.status)
	}
	return fmt.Sprintf("registry %s responded with %s; retry after %s", e.host, e.status, e.wait)
}

// RetryDelay returns how long to wait at least.
func (e *busyError) RetryDelay() time.Duration { return e.wait }

// busyOf returns the error for 429 Too Many Requests, and for 503 Service Unavailable with a time.
func busyOf(resp *http.Response, now time.Time) *busyError {
	wait := retryAfter(resp.Header.Get("Retry-After"), now)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && wait > 0 {
		return &busyError{resp.Request.URL.Host, resp.Status, wait}
	}
	return nil
}

// retryAfter reads the header, which has a number of seconds or a date. It returns 0 for others.
func retryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now).Round(time.Second))
	}
	return 0
}
