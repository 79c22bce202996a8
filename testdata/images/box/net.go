package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func web(args []string) error {
	set := flag.NewFlagSet("web", flag.ContinueOnError)
	addr := set.String("addr", ":8080", "listen address")
	dir := set.String("dir", "/www", "directory to serve")
	ready := set.String("ready", "", "file that must exist for /readyz to return 200")
	delay := set.Duration("delay", 0, "wait before listening")
	secure := set.Bool("tls", false, "serve HTTPS with a self-signed certificate")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(*delay):
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(*dir)))
	for _, path := range []string{"/healthz", "/livez"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	}
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(*ready); *ready != "" && err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	if *secure {
		certificate, err := selfSigned()
		if err != nil {
			return err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	fmt.Println("serving", *dir, "on", l.Addr())
	s := &http.Server{Handler: logged(mux)}
	go func() {
		<-ctx.Done()
		_ = s.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	fmt.Println("stopped")
	return nil
}

func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

func get(args []string) error {
	set := flag.NewFlagSet("get", flag.ContinueOnError)
	timeout := set.Duration("timeout", 5*time.Second, "for all attempts")
	again := set.Bool("again", false, "retry until it succeeds")
	want := set.Int("status", http.StatusOK, "expected status")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	for {
		err := getOnce(ctx, set.Arg(0), *want)
		if err == nil || !*again || ctx.Err() != nil {
			return err
		}
		time.Sleep(poll)
	}
}

func getOnce(ctx context.Context, url string, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

func tcp(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: tcp ADDRESS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var dial net.Dialer
	c, err := dial.DialContext(ctx, "tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("connected to", c.RemoteAddr())
	return c.Close()
}
