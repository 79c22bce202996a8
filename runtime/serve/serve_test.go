package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/runonce/runonce/runtime/serve"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, expect := range map[string]struct {
		printed  string
		loopback bool
		err      string
	}{
		"unix:/run/s":    {"unix:/run/s", true, ""},
		"unix:///run/s":  {"unix:/run/s", true, ""},
		"127.0.0.1:6443": {"127.0.0.1:6443", true, ""},
		"127.9.9.9:0":    {"127.9.9.9:0", true, ""},
		"localhost:6443": {"localhost:6443", true, ""},
		"[::1]:6443":     {"[::1]:6443", true, ""},
		"0.0.0.0:6443":   {"0.0.0.0:6443", false, ""},
		"[::]:6443":      {"[::]:6443", false, ""},
		"10.0.0.1:6443":  {"10.0.0.1:6443", false, ""},
		"node:6443":      {"node:6443", false, ""},
		"unix:s":         {"", false, `"unix:s": the path of a socket must be absolute`},
		":6443":          {"", false, `":6443" has no host; 0.0.0.0 and [::] are all addresses of this machine`},
		"6443":           {"", false, `"6443" is neither unix:PATH nor HOST:PORT`},
		"localhost:":     {"", false, `"localhost:": no port ""`},
		"localhost:x-x":  {"", false, `"localhost:x-x": no port "x-x"`},
		"":               {"", false, `"" is neither unix:PATH nor HOST:PORT`},
	} {
		a, err := serve.ParseAddress(text)
		if err != nil {
			want(t, text, err.Error(), expect.err)
			continue
		}
		want(t, text, a.String(), expect.printed)
		want(t, text+" is loopback", a.IsLoopback(), expect.loopback)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, expect := range map[string]struct {
		cert, key, err string
	}{
		"unix:/signed": {"", "", "unix:/signed: clients of a socket have no certificates"},
		"unix:/s":      {"", "", ""},
		"127.0.0.1:1":  {"", "", ""},
		"127.0.0.1:2":  {"c", "k", ""},
		"0.0.0.0:1":    {"c", "k", ""},
		"0.0.0.0:2":    {"", "", "0.0.0.0:2 can be reached by others: that needs a certificate that they know"},
		"127.0.0.1:3":  {"c", "", "a certificate needs its key, and a key its certificate"},
		"127.0.0.1:4":  {"", "k", "a certificate needs its key, and a key its certificate"},
		"unix:/socket": {"c", "k", "unix:/socket: a socket has no certificate"},
	} {
		a, err := serve.ParseAddress(text)
		must(t, err)
		signer := map[bool]string{true: "s"}[strings.HasSuffix(text, "signed")]
		if err := (serve.Options{Address: a, CertFile: expect.cert, KeyFile: expect.key, ClientCAFile: signer}).Check(); fmt.Sprint(err) != expect.err && (err != nil || expect.err != "") {
			t.Errorf("%s: %v, want %s", text, err, expect.err)
		}
	}
}

// open serves a handler until the test ends. The returned function ends it before.
func open(t *testing.T, address string, h http.HandlerFunc, change ...func(*serve.Options)) (kubeconfig string, end func()) {
	t.Helper()
	a, err := serve.ParseAddress(address)
	must(t, err)
	o := serve.Options{Address: a, Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Handler: h, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	s, err := serve.Listen(t.Context(), o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(end)
	return o.Kubeconfig, end
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// viaSocket is a client of a server on a socket.
func viaSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
}

// ask returns the answer to a request.
func ask(t *testing.T, c *http.Client, url string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if header != nil {
		r.Header = header
	}
	resp, err := c.Do(r)
	must(t, err)
	defer func() { must(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

// TestSocket: only its owner may use it, one that was left is replaced, and one with a server or another file is not.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(filepath.Dir(socketPath(t)), "state", "s")
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	old.SetUnlinkOnClose(false)
	must(t, old.Close())

	_, end := open(t, "unix:"+path, hello)
	info, err := os.Stat(path)
	must(t, err)
	want(t, "mode", info.Mode(), fs.ModeSocket|0o600)
	code, text := ask(t, viaSocket(path), "http://node/", nil)
	want(t, "answer", fmt.Sprintf("%d %s", code, text), "200 hello")
	_, err = serve.Listen(t.Context(), serve.Options{Address: serve.Address{Socket: path}})
	want(t, "a second server", fmt.Sprint(err), "listening on unix:"+path+": another server listens there")
	end()
	left, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	want(t, "left", len(left), 0)

	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = serve.Listen(t.Context(), serve.Options{Address: serve.Address{Socket: path}})
	want(t, "a file", fmt.Sprint(err), "listening on unix:"+path+": "+path+" is not a socket")
	content, err := os.ReadFile(path)
	must(t, err)
	want(t, "the file", string(content), "precious")
}

// TestSizes: what is too large is refused.
func TestSizes(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	read := make(chan error, 1)
	open(t, "unix:"+path, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	client := viaSocket(path)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/", nil)
	must(t, err)
	r.Header.Set("X-Large", strings.Repeat("x", 100<<10))
	resp, err := client.Do(r)
	must(t, err)
	must(t, resp.Body.Close())
	want(t, "a large header", resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
	r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://node/", io.LimitReader(endless{}, 4<<20))
	must(t, err)
	if resp, err := client.Do(r); err == nil { // or the connection was closed meanwhile
		must(t, resp.Body.Close())
	}
	var tooLarge *http.MaxBytesError
	if err := <-read; !errors.As(err, &tooLarge) {
		t.Errorf("a large body: %v", err)
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(data []byte) (int, error) { return len(data), nil }

// TestRate: too many requests are refused, and who asks without the token does not use up the share of those who have
// it.
func TestRate(t *testing.T) {
	t.Parallel()
	kubeconfig, _ := open(t, "127.0.0.1:0", hello)
	config, _ := clientOf(t, kubeconfig)
	token := config.BearerToken
	config.BearerToken = ""
	stranger, err := rest.HTTPClientFor(config)
	must(t, err)
	codes := map[int]int{}
	for range 300 {
		code, _ := ask(t, stranger, config.Host, nil)
		codes[code]++
	}
	if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusUnauthorized] == 0 || len(codes) != 2 {
		t.Errorf("answers to a stranger: %v", codes)
	}
	code, _ := ask(t, stranger, config.Host, http.Header{"Authorization": {"Bearer " + token}})
	want(t, "meanwhile, with the token", code, http.StatusOK)
}

// TestConnections: many connections keep nobody out who has the token, and leave nothing.
func TestConnections(t *testing.T) {
	kubeconfig, end := open(t, "127.0.0.1:0", hello)
	config, kept := clientOf(t, kubeconfig)
	address := strings.TrimPrefix(config.Host, "https://")
	asks := func(client *http.Client) {
		t.Helper()
		code, _ := ask(t, client, config.Host, nil)
		want(t, "code", code, http.StatusOK)
	}
	asks(kept)
	var files unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	var strangers []net.Conn
	for i := range min(10_000, int(files.Cur)-2000) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must(t, err)
		strangers = append(strangers, conn)
		if i%1000 == 0 {
			asks(kept)
			_, client := clientOf(t, kubeconfig)
			asks(client)
			client.CloseIdleConnections()
		}
	}
	isClosed := func(conn net.Conn) bool {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded) && conn.Close() == nil
	}
	for deadline := time.Now().Add(time.Minute); len(strangers) > serve.MaxStrangers; {
		strangers = slices.DeleteFunc(strangers, isClosed)
		if time.Now().After(deadline) {
			t.Fatalf("%d connections stay", len(strangers))
		}
	}
	asks(kept)
	for _, conn := range strangers {
		must(t, conn.Close())
	}
	end()
}

// socketPath returns a path that is short enough.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ro-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "s")
}

// TestSmuggling: requests of which the length is in doubt are refused.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	open(t, "unix:"+path, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.URL.Path)
	})
	for name, request := range map[string]string{
		"two lengths":         "POST /a HTTP/1.1\r\nHost: n\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: n\r\n\r\n",
		"length with chunks":  "POST /a HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked, identity\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: n\r\n\r\n",
		"a space in the name": "POST /a HTTP/1.1\r\nHost: n\r\nContent-Length : 30\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: n\r\n\r\n",
		"no host":             "GET /smuggled HTTP/1.1\r\n\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		must(t, err)
		_, err = io.WriteString(conn, request)
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		answer, _ := io.ReadAll(conn)
		if bytes.Contains(answer, []byte("smuggled")) || !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(answer, []byte("HTTP/1.1 501")) {
			t.Errorf("%s: %q", name, answer)
		}
		must(t, conn.Close())
	}
}

// TestEnd: streams end at once when the server does.
func TestEnd(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	begun := make(chan struct{})
	_, end := open(t, "unix:"+path, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	})
	ended := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = viaSocket(path).Do(r); err == nil {
				_, err = io.ReadAll(resp.Body)
				err = errors.Join(err, resp.Body.Close())
			}
		}
		ended <- err
	}()
	<-begun
	end()
	must(t, <-ended)
}
