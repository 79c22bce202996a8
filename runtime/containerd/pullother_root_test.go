package containerd_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/runtime/engine"
)

// TestPullOther: what is not an image, as its configuration has layers that it has not, is refused and
// does not take the name from an image. An image without layers is one.
func TestPullOther(t *testing.T) {
	p := newTestDirs(t)
	r := registry.Start(t, registry.Options{})
	var other atomic.Bool
	proxy := pushData(t, r, "team/data:1", 1, registry.Rule{Path: "/manifests/", Times: 99, Fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !other.Load() {
			next.ServeHTTP(w, r)
			return
		}
		asked := r.Clone(r.Context())
		asked.Method, asked.URL.Path = http.MethodGet, "/v2/team/data/manifests/1"
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, asked)
		body := regexp.MustCompile(`"layers":\[.*?\]`).ReplaceAll(answer.Body.Bytes(), []byte(`"layers":[]`))
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(body).String())
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
		}
	}})
	e := p.openWith(t, nil)
	ref := proxy.Host + "/team/data:1"
	refused := func() {
		t.Helper()
		other.Store(true)
		defer other.Store(false)
		if _, err := e.Pull(t.Context(), ref); !failure.IsPermanent(err) || !strings.Contains(err.Error(), "registry "+proxy.Host+" has something other than a container image") {
			t.Errorf("%v", err)
		}
	}
	refused()
	if _, err := e.Image(t.Context(), ref); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	img, err := e.Pull(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	refused()
	if got, err := e.Image(t.Context(), ref); err != nil || got.ID != img.ID {
		t.Errorf("the image before is %+v, %v", got, err)
	}

	r.Push(t, "team/empty:1", ociimage.Image{Ref: "registry.example/empty:1"})
	if got, err := e.Pull(t.Context(), r.Host+"/team/empty:1"); err != nil || got.Passwd != nil {
		t.Errorf("without layers: %+v, %v", got, err)
	}
}
