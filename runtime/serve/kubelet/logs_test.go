package kubelet_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/serve/kubelet"
)

// TestContainerLogs: what of a log is asked for.
func TestContainerLogs(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	pod := n.start(t, "web", "stay", func(pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyAlways })
	log, err := n.Log(t.Context(), pod, "main", false)
	must(t, err)
	const old = "2020-01-01T00:00:0%d.5Z %s F line %d\n"
	must(t, os.WriteFile(log, fmt.Appendf(nil, old+old+old, 1, "stdout", 1, 2, "stderr", 2, 3, "stdout", 3), 0o600))
	for query, expect := range map[string]struct {
		code int
		body string
	}{
		"":                               {200, "line 1\nline 2\nline 3\n"},
		"tailLines=1":                    {200, "line 3\n"},
		"tailLines=0":                    {200, ""},
		"limitBytes=9":                   {200, "line 1\nli"},
		"limitBytes=100":                 {200, "line 1\nline 2\nline 3\n"},
		"timestamps=true&tailLines=1":    {200, "2020-01-01T00:00:03.5Z line 3\n"},
		"timestamps=0&tailLines=1":       {200, "line 3\n"},
		"sinceTime=2020-01-01T00:00:02Z": {200, "line 2\nline 3\n"},
		"sinceSeconds=10":                {200, ""},
		"sinceSeconds=9000000000000":     {200, "line 1\nline 2\nline 3\n"},
		"stream=Stderr":                  {200, "line 2\n"},
		"stream=Stdout&limitBytes=8":     {200, "line 1\nl"},
		"stream=All":                     {200, "line 1\nline 2\nline 3\n"},
		"unknown=1":                      {200, "line 1\nline 2\nline 3\n"},
		"follow=true&limitBytes=8":       {200, "line 1\nl"},
		"previous":                       {400, `previous terminated container "main" in pod "default/web" not found`},
		"previous=false":                 {200, "line 1\nline 2\nline 3\n"},
		"tailLines=-1":                   {422, "tailLines: -1 is less than 0"},
		"tailLines=x":                    {422, `tailLines: strconv.ParseInt: parsing "x": invalid syntax`},
		"limitBytes=0":                   {422, "limitBytes: 0 is less than 1"},
		"sinceSeconds=0":                 {422, "sinceSeconds: 0 is less than 1"},
		"sinceTime=yesterday":            {422, `sinceTime: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`},
		"stream=Stdin":                   {422, `stream: "Stdin" is none of All, Stdout, Stderr`},
		"stream=Stdout&tailLines=1":      {422, "tailLines and stream are mutually exclusive"},
		"sinceSeconds=1&sinceTime=2020-01-01T00:00:02Z": {422, "at most one of sinceTime or sinceSeconds may be specified"},
	} {
		code, body := n.get(t, "/containerLogs/default/web/main?"+query)
		want(t, query, code, expect.code)
		if code != http.StatusOK {
			body = strings.TrimSuffix(body, "\n")
		}
		want(t, query, body, expect.body)
	}
	n.end(t, pod, 1)
	must(t, n.Sync(t.Context(), pod))
	if _, body := n.get(t, "/containerLogs/default/web/main?previous=true"); body != "line 1\nline 2\nline 3\n" {
		t.Errorf("of the instance before: %q", body)
	}
	must(t, os.Remove(log))
	if code, body := n.get(t, "/containerLogs/default/web/main?previous=true"); code != http.StatusInternalServerError && code != http.StatusBadRequest {
		t.Errorf("of a log that is gone: %d %q", code, body)
	}
}

// TestFollow: lines are sent as they come, up to the end of the container.
func TestFollow(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	pod := n.start(t, "web", "stay")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/containerLogs/default/web/main?follow=true", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { must(t, resp.Body.Close()) }()
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	must(t, err)
	want(t, "while it runs", line, "deaf from now on\n")
	n.end(t, pod, 0)
	rest, err := io.ReadAll(lines)
	must(t, err)
	want(t, "after that", string(rest), "")
}

// FuzzLogRequest: any parameters are taken or refused, and no amount is negative.
func FuzzLogRequest(f *testing.F) {
	for _, seed := range []string{"", "follow&tailLines=3", "sinceSeconds=9223372036854775807", "limitBytes=1&stream=Stderr", "%zz=1;x"} {
		f.Add(seed)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/", nil)
		must(t, err)
		r.URL.RawQuery = query
		o, err := kubelet.ParseLogOptions(r.URL.Query(), now)
		if err != nil {
			return
		}
		if o.Tail != nil && *o.Tail < 0 || o.Limit == 0 || o.Limit < -1 {
			t.Errorf("%q: %+v", query, o)
		}
	})
}

// deadlines is a response that knows the deadlines of its writes.
type deadlines struct {
	*httptest.ResponseRecorder
	set  bool
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set, d.last = d.set || !t.IsZero(), t
	return nil
}

// TestLogDeadline: a client has to read what it is sent, and may wait for ever for more.
func TestLogDeadline(t *testing.T) {
	t.Parallel()
	var o kubelet.Options
	n := serve(t, func(all *kubelet.Options) { o = *all })
	pod := n.start(t, "web", "echo hello")
	path, err := n.Log(t.Context(), pod, "main", false)
	must(t, err)
	must(t, os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F hello\n"), 0o600))
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	kubelet.Handler(o).ServeHTTP(d, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/default/web/main", nil))
	if d.Body.String() != "hello\n" || !d.set || !d.last.IsZero() {
		t.Errorf("%q, a deadline was set: %t, the last one: %s", d.Body, d.set, d.last)
	}
}
