package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runonce/runonce/internal/failure"
)

const (
	// fieldManager owns the fields of what this program applies.
	fieldManager = "runonce"
	// connectTimeout bounds the first request, so that an unusable cluster is known in seconds.
	connectTimeout = 10 * time.Second
	// connectFor is how long a server that refuses connections is tried again.
	connectFor   = 3 * time.Second
	connectDelay = 250 * time.Millisecond
	// credentialsGrace is how much later than its deadline a request may end that waits for credentials.
	credentialsGrace = time.Second
	// maxRequests bounds the requests at one time, apart from watches.
	maxRequests = 32
)

// client is a connection to an API server.
type client struct {
	rest   *rest.RESTClient
	config *rest.Config // for streams
	server string
	slots  chan struct{}
}

// dial makes a client, and checks that the server answers and knows the user.
func dial(ctx context.Context, c Config, log *slog.Logger) (*client, error) {
	cl, err := newClient(c.rest, log)
	if err != nil {
		return nil, err
	}
	return cl, cl.connect(ctx)
}

func newClient(c *rest.Config, log *slog.Logger) (*client, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c)
	config.APIPath, config.GroupVersion = "/api", &v1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = fieldManager
	// The server has priority and fairness, and the number of requests at a time is bounded.
	config.QPS = -1
	config.WarningHandlerWithContext = &warnings{log: log, seen: map[string]bool{}}
	r, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return &client{rest: r, config: config, server: config.Host, slots: make(chan struct{}, maxRequests)}, nil
}

// connect asks the server for its version. A server that starts may refuse connections for a
// moment; one that has too much to do says when to ask again.
func (c *client) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for begin := time.Now(); ; {
		err := c.version(ctx)
		if err == nil {
			return nil
		}
		delay, patience := connectDelay, connectFor
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			delay, patience = max(delay, time.Duration(seconds)*time.Second), connectTimeout
		}
		if !isTransient(err) || time.Since(begin)+delay > patience || ctx.Err() != nil {
			return fmt.Errorf("API server %s: %w", c.server, cause(err))
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
}

// version asks the server for its version. A program that gets the credentials knows no deadline, so it is left
// behind when it takes longer than everything else.
func (c *client) version(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- c.rest.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error() }()
	left := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(credentialsGrace, func() { close(left) }) })()
	select {
	case err := <-done:
		return err
	case <-left:
		return fmt.Errorf("getting credentials: %w", context.Cause(ctx))
	}
}

// limited calls a function while few enough requests are under way.
func (c *client) limited(ctx context.Context, request func() error) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
		return request()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// create creates a pod, or has the server only say whether it would.
func (c *client) create(ctx context.Context, pod *v1.Pod, dryRun bool, into *v1.Pod) error {
	o := metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return c.rest.Post().Namespace(pod.Namespace).Resource("pods").VersionedParams(&o, metav1.ParameterCodec).Body(pod).Do(ctx).Into(into)
}

func (c *client) get(ctx context.Context, name types.NamespacedName, into *v1.Pod) error {
	return c.rest.Get().Namespace(name.Namespace).Resource("pods").Name(name.Name).Do(ctx).Into(into)
}

// patch merges fields into a pod of the cluster.
func (c *client) patch(ctx context.Context, there *v1.Pod, fields map[string]any, into *v1.Pod) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return c.limited(ctx, func() error {
		return c.rest.Patch(types.MergePatchType).Namespace(there.Namespace).Resource("pods").Name(there.Name).Body(body).Do(ctx).Into(into)
	})
}

// cause returns an error without the request that it is about.
func cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if failure.IsUntrusted(err) {
		return failure.WithMessage(err.Error()+": "+failure.AdviceUntrusted+" or to the kubeconfig", err)
	}
	return err
}

// isTransient reports whether a later request may succeed: after 429, 5xx, or no answer at all.
// What the server says about the request or the user does not change by itself.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err != nil && !failure.IsPermanent(err)
	}
	code := int(status.Status().Code)
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// isDenied reports whether the server does not know the user, or does not allow the request.
func isDenied(err error) bool {
	// The words of authorizers; those of quotas and other admission are different.
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `)
}

// isQuota reports whether a quota does not allow a request (the words of
// k8s.io/apiserver/pkg/admission/plugin/resourcequota).
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// denial is the error of a pod that the user may not create, who could before. A server that starts does
// not know all users and roles at once, so a few retries may help.
func denial(err error) error {
	return failure.Limited(3, &failure.Error{Why: string(apierrors.ReasonForError(err)), Err: fmt.Errorf("creating the pod: %w", cause(err))})
}

// requestError returns the error of a request about an object, with what it means for a retry.
func requestError(what string, err error) error {
	if err == nil {
		return nil
	}
	e := &failure.Error{Why: string(apierrors.ReasonForError(err)), Final: !isTransient(err), Err: fmt.Errorf("%s: %w", what, cause(err))}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.Wait = time.Duration(seconds) * time.Second
	}
	e.Why = cmp.Or(e.Why, "APIError")
	return e
}

// words returns what the server said.
func words(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return cause(err).Error()
}

// warnings logs the server's warnings, each once.
type warnings struct {
	log  *slog.Logger
	mu   sync.Mutex
	seen map[string]bool
}

// HandleWarningHeaderWithContext is called for each warning in an answer.
func (w *warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if code != 299 || text == "" || w.seen[text] {
		return
	}
	w.seen[text] = true
	w.log.WarnContext(ctx, "the API server warns: "+text)
}
