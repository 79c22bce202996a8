package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestLost: a watch that fails is said once, and when it goes on; the cluster is lost when the server
// does not come back, or keeps refusing the user.
func TestLost(t *testing.T) {
	t.Parallel()
	refused, denied := errors.New("connection refused"), apierrors.NewUnauthorized("who are you?")
	for name, test := range map[string]struct {
		errs []error // one every 6 seconds
		lost bool
		logs int
	}{
		"restarted":        {errs: []error{refused, refused, refused, nil}, logs: 2},
		"starting":         {errs: []error{refused, denied, denied, nil, denied, nil}, logs: 4},
		"denied":           {errs: []error{denied, denied, denied}, lost: true, logs: 1},
		"down for long":    {errs: slices.Repeat([]error{refused}, 52), lost: true, logs: 1},
		"down for a while": {errs: append(slices.Repeat([]error{refused}, 45), nil), logs: 2},
		"expired watches":  {errs: []error{apierrors.NewResourceExpired("too old"), nil}, logs: 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := &Pods{c: &client{server: "https://192.0.2.1"}, o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, cache: newPodCache(nil)}
			f := &follower{p: p, told: true}
			for _, err := range test.errs {
				f.noteError(t.Context(), err)
				time.Sleep(6 * time.Second)
			}
			if n := strings.Count(log.String(), "\n"); n != test.logs || (p.Lost() != nil) != test.lost {
				t.Errorf("%s: lost: %v; %d lines:\n%s", name, p.Lost(), n, &log)
			}
		})
	}
}

// answers is an API server: what it answers to every request.
type answers func() (*http.Response, error)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a() }

// podList answers with the pods of these names.
func podList(names ...string) answers {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range names {
		list.Items = append(list.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "6"}})
	}
	body, _ := json.Marshal(list)
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
	}
}

// TestRefresh: at the end of a run the pods are those that the server has then. When it has not answered
// for a while, they are not known since it did for the last time.
func TestRefresh(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for name, test := range map[string]struct {
		answers
		broken, later time.Duration // when the watch is interrupted, 0 if it is not, and how much later the run ends
		since         time.Duration // -1 if the pods are known
	}{
		"answers":               {podList("web"), 0, time.Hour, -1},
		"answers again":         {podList("web"), 2 * time.Second, time.Hour, -1},
		"away for a moment":     {func() (*http.Response, error) { return nil, refused }, time.Hour, 4 * time.Second, -1},
		"away":                  {func() (*http.Response, error) { return nil, refused }, time.Hour, 6 * time.Second, time.Hour},
		"away, but not noticed": {func() (*http.Response, error) { return nil, refused }, 0, 6 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := newClient(&rest.Config{Host: "https://192.0.2.1", Transport: test.answers}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				p := &Pods{c: c, o: Options{Log: slog.New(slog.DiscardHandler)}, cache: newPodCache(func(*v1.Pod) {})}
				f := &follower{p: p, told: true, heard: time.Now()}
				p.followers = []*follower{f}
				begin := time.Now()
				if err := f.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone", ResourceVersion: "5"}}); err != nil {
					t.Fatal(err)
				}
				if time.Sleep(test.broken); test.broken > 0 {
					f.noteError(t.Context(), refused)
				}
				time.Sleep(test.later)
				since, err := p.Refresh(t.Context())
				if test.since < 0 {
					if err != nil || p.Unseen() != nil {
						t.Errorf("since %s: %v", since, err)
					}
				} else if err == nil || err.Error() != "API server https://192.0.2.1: connection refused" || !since.Equal(begin.Add(test.since)) || p.Unseen() == nil || p.Lost() != nil {
					t.Errorf("since %s: %v", since, err)
				}
				web, _ := p.cache.get(types.NamespacedName{Namespace: "ns", Name: "web"})
				gone, last := p.cache.get(types.NamespacedName{Namespace: "ns", Name: "gone"})
				if answered := strings.HasPrefix(name, "answers"); (web != nil) != answered || (gone == nil) != answered || gone == nil && last == nil {
					t.Errorf("the pods are %v and %v", web, gone)
				}
			})
		})
	}
}
