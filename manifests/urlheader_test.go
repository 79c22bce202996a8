package manifests

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("\ufeff# for the store\n\n  Authorization: Bearer a:b==\r\nx-team: one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Headers([]string{"X-Team: two", "accept:text/yaml"}, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Authorization": {"Bearer a:b=="}, "X-Team": {"two", "one"}, "Accept": {"text/yaml"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWrongHeaders: errors say where, and have nothing of what may be secret.
func TestWrongHeaders(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"secret":              "a header is written as NAME: VALUE",
		"secret:":             "a header is written as NAME: VALUE",
		"a secret: x":         "the name of a header has no spaces and only some punctuation marks",
		": secret":            "the name of a header has no spaces and only some punctuation marks",
		"X-Token: secret\x01": "the value of a header has no control characters",
		"host: secret":        "the header Host follows from the URL",
	} {
		if _, err := Headers([]string{in}, nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
		file := filepath.Join(t.TempDir(), "headers")
		if err := os.WriteFile(file, []byte("X: y\n"+in+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Headers(nil, []string{file}); err == nil || err.Error() != file+":2: "+want {
			t.Errorf("%q in a file: %v", in, err)
		}
	}
	if _, err := Headers(nil, []string{"/no/such/file"}); err == nil || err.Error() != "/no/such/file: does not exist" {
		t.Errorf("no file: %v", err)
	}
}

// store is a server that keeps the headers of the requests that it got.
type store struct {
	*httptest.Server
	got map[string]http.Header // by path
}

func newStore(t *testing.T, handle http.HandlerFunc) *store {
	t.Helper()
	s := &store{got: map[string]http.Header{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.got[r.URL.Path] = r.Header
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestHeadersStay: headers go to the server of the URL, also after a redirect, and to no other one.
func TestHeadersStay(t *testing.T) {
	t.Parallel()
	other := newStore(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("pod")) })
	first := newStore(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL+"/pod", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/pod", http.StatusFound)
		case "/for-ever":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		default:
			_, _ = w.Write([]byte("pod"))
		}
	})
	o := Options{Header: http.Header{"X-Token": {"secret"}, "Authorization": {"Bearer secret"}}}
	sent := func(h http.Header) string { return h.Get("X-Token") + ", " + h.Get("Authorization") }
	const all, none = "secret, Bearer secret", ", "
	if got := input(t, o, first.URL+"/moved"); len(got) != 1 || got[0] != first.URL+"/moved: pod" || sent(first.got["/moved"]) != all || sent(first.got["/pod"]) != all {
		t.Errorf("%q, sent %v", got, first.got)
	}
	if got := input(t, o, first.URL+"/away?key=secret"); len(got) != 1 || !strings.HasSuffix(got[0], ": pod") || sent(first.got["/away"]) != all {
		t.Errorf("%q, sent %v", got, first.got)
	}
	if h, ok := other.got["/pod"]; !ok || sent(h) != none || h.Get("Referer") != "" {
		t.Errorf("the other server got %v", h)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	req := func(url string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		r.Header.Set("X-Token", "secret")
		return r
	}
	check := redirected(http.Header{"X-Token": {"secret"}})
	for to, want := range map[string]string{
		"https://a/y": "secret", "http://a/x": "", "https://a:444/x": "", "https://b.a/x": "", "https://b/x": "",
	} {
		next := req(to)
		if err := check(next, []*http.Request{req("https://a/x")}); err != nil || next.Header.Get("X-Token") != want {
			t.Errorf("%s gets %q, %v", to, next.Header.Get("X-Token"), err)
		}
	}
	if err := check(req("https://a/x"), make([]*http.Request, 10)); err == nil {
		t.Error("it follows redirects for ever")
	}
}

func TestHeadersForOneServer(t *testing.T) {
	t.Parallel()
	got := input(t, Options{Header: http.Header{"X": {"y"}}}, "https://u:secret@a/x", "https://a/y", "file", "https://b/x")
	if d := cmp.Diff([]string{"error https://a, https://b: are several servers, of which only one may get the headers (read the others in another run, or download them first)"}, got); d != "" {
		t.Error(d)
	}
}

func TestElsewhere(t *testing.T) {
	t.Parallel()
	const clone = " (git clone --depth 1 "
	for p, want := range map[string]string{
		"oci://registry.example/pods:1":            "oci://registry.example/pods:1: artifacts in registries are not read (oras pull -o DIR registry.example/pods:1 && runonce run DIR)",
		"git::https://u:secret@a.example/b":        "git::https://u:xxxxx@a.example/b: git repositories are not read" + clone + "https://u:xxxxx@a.example/b DIR && runonce run DIR)",
		"https://secret@a.example/b.git":           "https://xxxxx@a.example/b.git: git repositories are not read" + clone + "https://xxxxx@a.example/b.git DIR && runonce run DIR)",
		"https://a.example/b.git?ref=x":            "https://a.example/b.git?...: git repositories are not read" + clone + "https://a.example/b.git?... DIR && runonce run DIR)",
		"git@a.example:b/c":                        "git@a.example:b/c: git repositories are not read" + clone + "git@a.example:b/c DIR && runonce run DIR)",
		"ssh://git@a.example/b":                    "ssh://git@a.example/b: git repositories are not read" + clone + "ssh://git@a.example/b DIR && runonce run DIR)",
		"s3://bucket/pod.yaml":                     "s3://bucket/pod.yaml: addresses that begin with s3:// are not read (fetch it first, and pass the file)",
		"http://u:se/cret@a.example/x":             "http://...: is not a URL (write what is no letter, digit or -._~ in a password as %XX)",
		"https://a.example/b.git/plain/../pod.yml": "",
		"no-such-file":                             "no-such-file: does not exist",
	} {
		if want == "" {
			if _, ok := elsewhere(p); ok {
				t.Errorf("%s is refused", p)
			}
			continue
		}
		set, err := ReadPaths(t.Context(), []string{p}, Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", p, err, want)
		}
		for _, in := range set.Invalid {
			if strings.Contains(in.Path, "secret") {
				t.Errorf("%s: the path is %s", p, in.Path)
			}
		}
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]string{
		"pods":                 "pods",
		"https://u:secret@a/x": "https://u:xxxxx@a/x",
		"https://secret@a/x":   "https://xxxxx@a/x",
		"https://secret:@a/x":  "https://xxxxx@a/x",
		"https://a/x?k=secret": "https://a/x?...",
	} {
		if got := Shown(p); got != want {
			t.Errorf("%s: %s", p, got)
		}
	}
}
