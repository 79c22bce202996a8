package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
)

// headerTimeout bounds how long a client may take to send the header of a request.
const headerTimeout = 30 * time.Second

// listen opens the port for the API server.
func listen(ctx context.Context, o options) (net.Listener, error) {
	pair, err := certificate(o)
	if err != nil {
		return nil, err
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return nil, fmt.Errorf("opening the port for the API server: %w", err)
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
	}), nil
}

// certificate returns that of the port, one that nobody else has signed if there is no file.
func certificate(o options) (tls.Certificate, error) {
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return pair, fmt.Errorf("reading the certificate of the node: %w", err)
		}
		return pair, nil
	}
	text, key, err := cert.GenerateSelfSignedCertKey(o.name, []net.IP{net.ParseIP(o.ip)}, nil)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate of the node: %w", err)
	}
	return tls.X509KeyPair(text, key)
}

// guarded returns the handler behind a check of who asks.
func guarded(o options, client kubernetes.Interface, h http.Handler) (http.Handler, error) {
	if o.authorization == alwaysAllow {
		return h, nil
	}
	auth, err := nodeutil.WebhookAuth(client, o.name, func(c *nodeutil.WebhookAuthConfig) error {
		if o.clientCA == "" {
			return nil
		}
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCA)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		c.AuthnConfig.ClientCertificateCAContentProvider = ca
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the checks of clients: %w", err)
	}
	return nodeutil.WithAuth(auth, h), nil
}

// serve serves the API server until ctx is done.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the API server: %w", err)
	}
	return nil
}
