// Package serve serves the pods of this machine over HTTP, to those who may: to root over a socket in the file system,
// and over TCP, always with TLS, to who has the token or a certificate.
package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// What a client may take, so that none can keep others out or fill the memory.
const (
	maxConnections = 1000
	maxStrangers   = 200      // connections of which no request had the token yet
	maxHeader      = 64 << 10 // bytes
	maxBody        = 3 << 20  // bytes, as the API server's
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute // between requests
	// How many requests are answered, and with how many at once. Requests without the right token have their own share.
	requestsPerSecond, requestsAtOnce = 200, 400
	strangersPerSecond                = 20
	// endTimeout is how long requests may go on when the server ends.
	endTimeout = 5 * time.Second
)

// Options say what is served, and where.
type Options struct {
	Address Address
	// CertFile and KeyFile have the certificate for TCP; without them, the server makes one.
	CertFile, KeyFile string
	// ClientCAFile has the certificates of those who sign the certificates of clients, which need no token then.
	ClientCAFile string
	// Kubeconfig is the file by which clients connect over TCP. It exists as long as the server listens.
	Kubeconfig string
	Handler    http.Handler
	Log        *slog.Logger
}

// Check refuses options that nobody should have by accident.
func (o Options) Check() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("a certificate needs its key, and a key its certificate")
	case o.CertFile != "" && o.Address.Socket != "":
		return fmt.Errorf("%s: a socket has no certificate", o.Address)
	case o.ClientCAFile != "" && o.Address.Socket != "":
		return fmt.Errorf("%s: clients of a socket have no certificates", o.Address)
	case o.CertFile == "" && !o.Address.IsLoopback():
		return fmt.Errorf("%s can be reached by others: that needs a certificate that they know", o.Address)
	}
	return nil
}

// Server listens.
type Server struct {
	o        Options
	listener net.Listener
	token    string // "" for a socket
	// kubeconfig is the content of the file.
	kubeconfig []byte
}

// Listen opens the address and writes the kubeconfig. The caller has Serve called.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	l, err := o.Address.listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", o.Address, err)
	}
	s := &Server{o: o, listener: &connections{Listener: l}}
	if o.Address.Socket != "" {
		return s, nil
	}
	host, _, _ := net.SplitHostPort(o.Address.TCP)
	_, port, _ := net.SplitHostPort(l.Addr().String()) // the one that was chosen for port 0
	s.o.Address.TCP = net.JoinHostPort(host, port)
	c, err := newCredentials(host, o)
	config := &tls.Config{Certificates: []tls.Certificate{c.certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if err == nil {
		err = o.verifyClients(config)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(o.Kubeconfig), 0o700)
	}
	if err == nil {
		s.kubeconfig, err = c.writeKubeconfig(o.Kubeconfig, s.o.Address.TCP)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.token = c.token
	s.listener = tls.NewListener(s.listener, config)
	return s, nil
}

// Address is where the server listens, with the port that it has.
func (s *Server) Address() Address { return s.o.Address }

// Serve answers requests until ctx is done, which ends streams at once and gives other requests a moment.
func (s *Server) Serve(ctx context.Context) error {
	redirect(s.o.Log)
	server := &http.Server{
		Handler: s.guard(s.o.Handler), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withConnection,
		ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close() // what is left is cut off
		}
		ended <- nil
	})
	err := errors.Join(server.Serve(s.listener), s.removeKubeconfig())
	if !stop() {
		return <-ended
	}
	return fmt.Errorf("serving on %s: %w", s.o.Address, err)
}

// removeKubeconfig removes the file, unless it is that of a later server.
func (s *Server) removeKubeconfig() error {
	if text, err := os.ReadFile(s.o.Kubeconfig); err == nil && s.kubeconfig != nil && bytes.Equal(text, s.kubeconfig) {
		return os.Remove(s.o.Kubeconfig)
	}
	return nil
}

// guard has the handler answer those who may ask, within limits.
func (s *Server) guard(h http.Handler) http.Handler {
	h = http.MaxBytesHandler(h, maxBody)
	known, strangers := rate.NewLimiter(requestsPerSecond, requestsAtOnce), rate.NewLimiter(strangersPerSecond, strangersPerSecond)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, allowed := known, s.allows(r)
		if !allowed {
			limit = strangers
		}
		switch {
		case !limit.Allow():
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests", http.StatusTooManyRequests)
		case !allowed:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		default:
			know(r.Context())
			h.ServeHTTP(w, r)
		}
	})
}

// allows says whether who asks may: over a socket, with a certificate that was verified, or with the token.
func (s *Server) allows(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given, wanted := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	return s.token == "" || strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], wanted[:]) == 1
}

// aside keeps klog from standard error, once: that is for good.
var aside sync.Once

// redirect has the libraries of streams, which log what clients do wrong with klog, log it as details.
func redirect(log *slog.Logger) {
	aside.Do(func() {
		var flags flag.FlagSet
		klog.InitFlags(&flags)
		_ = flags.Set("stderrthreshold", "FATAL") // a flag and a value of klog
		klog.LogToStderr(false)
	})
	klog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}
