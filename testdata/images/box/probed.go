package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// probed serves everything that probes and hooks can use: HTTP and cleartext HTTP/2 on 8080,
// HTTPS on 8443, gRPC health on 9000 and with TLS on 9443.
func probed(args []string) error {
	set := flag.NewFlagSet("probed", flag.ContinueOnError)
	lives := set.String("lives", "", "file that counts the starts; /alive returns 200 from the second start on")
	delay := set.Duration("delay", 0, "wait before listening")
	if err := set.Parse(args); err != nil {
		return err
	}
	life := 2
	if *lives != "" {
		if err := appendTo([]string{*lives, "x"}); err != nil {
			return err
		}
		data, err := os.ReadFile(*lives)
		if err != nil {
			return err
		}
		life = len(data) / len("x\n")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(*delay):
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	secure := &tls.Config{Certificates: []tls.Certificate{certificate}}
	errs := make(chan error, 4)
	for addr, s := range map[string]*http.Server{
		":8080": {Handler: logged(answers(life))},
		":8443": {Handler: logged(answers(life)), TLSConfig: secure.Clone()},
		":9000": {Handler: http.HandlerFunc(grpcHealth)},
		":9443": {Handler: http.HandlerFunc(grpcHealth), TLSConfig: secure.Clone()},
	} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		s.Protocols = &http.Protocols{}
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetHTTP2(true)
		s.Protocols.SetUnencryptedHTTP2(true)
		if s.TLSConfig == nil {
			go func() { errs <- s.Serve(l) }()
		} else {
			go func() { errs <- s.ServeTLS(l, "", "") }()
		}
	}
	fmt.Println("serving in life", life)
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// answers are the HTTP handlers for probes.
func answers(life int) http.Handler {
	var greeted atomic.Bool
	status := func(ok bool) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", status(true))
	mux.HandleFunc("/bad", status(false))
	mux.HandleFunc("/alive", status(life > 1))
	mux.HandleFunc("/header", func(w http.ResponseWriter, r *http.Request) {
		status(r.Header.Get("X-Probe") == "yes" && r.Host == "me")(w, r)
	})
	mux.HandleFunc("/http2", func(w http.ResponseWriter, r *http.Request) { status(r.ProtoMajor == 2)(w, r) })
	mux.HandleFunc("/near", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/far", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://no.such.host.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/hello", func(http.ResponseWriter, *http.Request) { greeted.Store(true) })
	mux.HandleFunc("/greeted", func(w http.ResponseWriter, r *http.Request) { status(greeted.Load())(w, r) })
	return mux
}

// grpcHealth implements grpc.health.v1.Health/Check: SERVING for the service "well" and the
// empty name, NOT_SERVING for others. This subset of gRPC is simple HTTP/2.
func grpcHealth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	request := make([]byte, 100)
	n, _ := r.Body.Read(request) // a prefix of 5 bytes, then the message: field 1 is the service
	serving := byte(1)
	if service := request[:n]; n > 7 && string(service[7:]) != "well" {
		serving = 2
	}
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 0x08, serving})
	w.Header().Set("Grpc-Status", "0")
}

// selfSigned creates a certificate that no client trusts.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
