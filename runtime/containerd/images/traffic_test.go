package images

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// tripper answers requests.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// slow is a body each byte of which takes some time, and whose end is an error.
type slow struct {
	text  string
	takes time.Duration
	end   error
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(s.takes)
	if s.text == "" {
		return 0, s.end
	}
	n := copy(p[:1], s.text)
	s.text = s.text[n:]
	return n, nil
}

func (s *slow) Close() error { return nil }

// get sends a request and reads the answer.
func get(ctx context.Context, t *traffic, answer *http.Response) (string, error) {
	rt := &transport{tripper(func(r *http.Request) (*http.Response, error) {
		answer.Request = r
		return answer, nil
	}), t}
	r := (&http.Request{URL: &url.URL{Host: "r.example"}, Header: http.Header{}}).WithContext(ctx)
	got, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(got.Body)
	return string(text), errors.Join(err, got.Body.Close())
}

// TestStalled: a pull ends when nothing has come for too long, not when it takes long, and not
// while nothing is asked for.
func TestStalled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		limit   time.Duration
		takes   time.Duration // each byte
		pause   time.Duration // after the answer
		stalled bool
	}{
		{"slow", time.Minute, 50 * time.Second, 0, false},
		{"stalled", time.Minute, 70 * time.Second, 0, true},
		{"busy with something else", time.Minute, time.Second, time.Hour, false},
		{"without a limit", 0, time.Hour, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, traffic, end := watchTraffic(t.Context(), tc.limit)
				defer end()
				text, err := get(ctx, traffic, &http.Response{StatusCode: http.StatusOK, Body: &slow{text: "abc", takes: tc.takes, end: io.EOF}})
				time.Sleep(tc.pause)
				if text != "abc" || err != nil {
					t.Errorf("%q, %v", text, err)
				}
				var stalled *stalledError
				if errors.As(context.Cause(ctx), &stalled) != tc.stalled {
					t.Errorf("%v", context.Cause(ctx))
				}
				if tc.stalled && stalled.Error() != "registry r.example has sent nothing for 1m0s (--pull-timeout)" {
					t.Errorf("%v", stalled)
				}
			})
		})
	}
}

// TestBrokenAnswer: containerd goes on after io.ErrUnexpectedEOF only.
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	_, traffic, end := watchTraffic(t.Context(), 0)
	defer end()
	text, err := get(t.Context(), traffic, &http.Response{StatusCode: http.StatusOK, Body: &slow{text: "abc", end: syscall.ECONNRESET}})
	if text != "abc" || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(traffic.broken, syscall.ECONNRESET) {
		t.Errorf("%q, %v, %v", text, err, traffic.broken)
	}
}

// TestBusy: a registry that asks to come back later gets that.
func TestBusy(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for _, tc := range []struct {
		code  int
		after string
		wait  time.Duration // -1 for no error
	}{
		{http.StatusTooManyRequests, "", 0},
		{http.StatusTooManyRequests, "30", 30 * time.Second},
		{http.StatusTooManyRequests, "soon", 0},
		{http.StatusTooManyRequests, "-1", 0},
		{http.StatusTooManyRequests, now.Add(time.Hour).Format(http.TimeFormat), time.Hour},
		{http.StatusTooManyRequests, now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{http.StatusServiceUnavailable, "30", 30 * time.Second},
		{http.StatusServiceUnavailable, "", -1},
		{http.StatusOK, "30", -1},
	} {
		resp := &http.Response{StatusCode: tc.code, Header: http.Header{"Retry-After": {tc.after}}, Request: &http.Request{URL: &url.URL{Host: "r.example"}}}
		busy := busyOf(resp, now)
		if (busy == nil) != (tc.wait < 0) || busy != nil && busy.RetryDelay() != tc.wait {
			t.Errorf("%d %q: %v", tc.code, tc.after, busy)
		}
	}
	_, traffic, end := watchTraffic(t.Context(), 0)
	defer end()
	_, err := get(t.Context(), traffic, &http.Response{StatusCode: 429, Status: "429 Too Many Requests", Header: http.Header{"Retry-After": {"2"}}, Body: http.NoBody})
	if want := "registry r.example responded with 429 Too Many Requests; retry after 2s"; err == nil || err.Error() != want || traffic.active != 0 {
		t.Errorf("%v, %d active", err, traffic.active)
	}
}

// endless is a body without an end.
type endless struct{ read *int64 }

func (e endless) Read(p []byte) (int, error) {
	*e.read += int64(len(p))
	return len(p), nil
}

func (endless) Close() error { return nil }

// TestEndless: what is no blob has a bound; a blob has none here, also after a redirect.
func TestEndless(t *testing.T) {
	t.Parallel()
	manifests := http.Header{"Accept": {"application/vnd.oci.image.manifest.v1+json, */*"}}
	to := func(path string, h http.Header) *http.Request {
		return &http.Request{URL: &url.URL{Host: "r.example", Path: path}, Header: h}
	}
	redirected := to("/data/1", nil)
	redirected.Response = &http.Response{Request: to("/v2/x/blobs/sha256:1", nil)}
	for _, tc := range []struct {
		name    string
		request *http.Request
		code    int
		bounded bool
	}{
		{"manifest", to("/v2/x/manifests/1", manifests), 200, true},
		{"token", to("/token", nil), 200, true},
		{"blob", to("/v2/x/blobs/sha256:1", nil), 200, false},
		{"part of a blob", to("/v2/x/blobs/sha256:1", nil), 206, false},
		{"redirected blob", redirected, 200, false},
		{"error", to("/v2/x/blobs/sha256:1", nil), 500, true},
		{"manifest that is looked for among the blobs", to("/v2/x/blobs/sha256:1", manifests), 200, true},
	} {
		var read int64
		var bytes atomic.Int64
		rt := &transport{tripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: tc.code, Body: endless{&read}, Request: r}, nil
		}), &traffic{bytes: &bytes}}
		resp, err := rt.RoundTrip(tc.request)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.CopyN(io.Discard, resp.Body, 2*maxAnswer)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		var tooMuch *tooMuchError
		if errors.As(err, &tooMuch) != tc.bounded || !tc.bounded && err != nil || tc.bounded && (read > maxAnswer+1<<20 || !IsPermanent(err)) {
			t.Errorf("%s: read %d: %v", tc.name, read, err)
		}
		if bytes.Load() != read {
			t.Errorf("%s: counted %d of %d", tc.name, bytes.Load(), read)
		}
	}
}
