package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runonce/runonce/internal/podspec"
)

const (
	// tailBytes bounds the last lines of a log.
	tailBytes = 16 << 10
	// removedInterval is when a kubelet is asked again that has removed the container it still knows.
	removedInterval = 200 * time.Millisecond
)

// removedLog matches what a kubelet sends instead of the log of an instance that it has just removed,
// as it keeps one that has ended of each container (pkg/kubelet/kuberuntime.GetContainerLogs).
var removedLog = regexp.MustCompile(`^unable to retrieve container logs for \S+$`)

// ErrLogRemoved says that a kubelet does not have the log of an instance any more.
var ErrLogRemoved = errors.New("the kubelet has removed it")

// LogOptions say what of a log is read.
type LogOptions struct {
	Container  string
	Previous   bool          // of the instance before the newest one
	Follow     bool          // until the container ends
	Tail       *int          // last lines; nil for all
	Since      time.Duration // until now, 0 for all
	SinceTime  time.Time     // in its place, zero for all
	Timestamps bool
}

// query returns the parameters of a request.
func (o LogOptions) query() url.Values {
	v := url.Values{"container": {o.Container}}
	set := func(name string, yes bool, value string) {
		if yes {
			v.Set(name, value)
		}
	}
	set("previous", o.Previous, "true")
	set("follow", o.Follow, "true")
	set("timestamps", o.Timestamps, "true")
	if o.Tail != nil {
		v.Set("tailLines", strconv.Itoa(*o.Tail))
	}
	set("sinceSeconds", o.Since > 0, strconv.Itoa(max(1, int(o.Since.Seconds()))))
	set("sinceTime", !o.SinceTime.IsZero(), o.SinceTime.UTC().Format(time.RFC3339))
	return v
}

// logPath is the path of a log in the API.
func logPath(namespace, name string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log", namespace, name)
}

// Logs copies the log of a container of a pod.
func (p *Pods) Logs(ctx context.Context, namespace, name string, o LogOptions, w io.Writer) error {
	r, err := p.c.stream(ctx, logPath(namespace, name), o.query())
	if err != nil {
		return fmt.Errorf("reading the log of container %q: %s", o.Container, words(err))
	}
	defer func() { _ = r.Close() }()
	b := bufio.NewReader(r)
	if !o.Follow { // which is of a container that is there
		if all, err := b.Peek(b.Size()); errors.Is(err, io.EOF) && removedLog.Match(all) {
			return fmt.Errorf("reading the log of container %q: %w", o.Container, ErrLogRemoved)
		}
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("reading the log of container %q: %w", o.Container, err)
	}
	return nil
}

func (c *client) stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r := c.rest.Get().AbsPath(path)
	for name, values := range query {
		r = r.Param(name, values[0])
	}
	return r.Stream(ctx)
}

// readLog reads a log in whole; one that is not there is empty.
func (c *client) readLog(path string, query url.Values) (content []byte, err error) {
	err = c.limited(context.Background(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		r, err := c.stream(ctx, path, query)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		content, err = io.ReadAll(r)
		return err
	})
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.New(words(err))
	}
	return content, nil
}

// Path returns the path in the API of the log of one instance of a container, by the ID in the pod's
// status, or of the last one that has ended if a kubelet does not have that any more; empty if there is
// none.
func (p *Pods) Path(pod *v1.Pod, container, id string) string {
	there, _ := p.cache.get(podspec.NameOf(pod))
	if !isOf(there, pod) || id == "" {
		return ""
	}
	for _, cs := range podspec.AllStatuses(there.Status) {
		if cs.Name != container || cs.ContainerID != id && podspec.LastTermination(cs) == nil {
			continue
		}
		last := cs.LastTerminationState.Terminated
		o := LogOptions{Container: container}
		o.Previous = last != nil && (last.ContainerID == id || cs.ContainerID != id && cs.State.Terminated == nil)
		return logPath(pod.Namespace, pod.Name) + "?" + o.query().Encode()
	}
	return ""
}

// Tail returns the last lines of the log at a path, at most n; one that is not there has none. That of an
// instance which was removed meanwhile is replaced by that of the newer one, which has ended as well.
func (p *Pods) Tail(path string, n int) ([]string, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if path == "" || err != nil {
		return nil, err
	}
	query.Set("tailLines", strconv.Itoa(n))
	query.Set("limitBytes", strconv.Itoa(tailBytes))
	content, err := p.c.readLog(path, query)
	for begin := time.Now(); removedLog.Match(content) && time.Since(begin) < StatusDelay; content, err = p.c.readLog(path, query) {
		query.Del("previous")
		time.Sleep(removedInterval)
	}
	if err != nil || len(content) == 0 || removedLog.Match(content) {
		return nil, err
	}
	var lines []string
	for line := range bytes.SplitSeq(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
		lines = append(lines, string(line))
	}
	return lines, nil
}
