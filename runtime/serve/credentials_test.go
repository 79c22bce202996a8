package serve_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runonce/runonce/internal/testing/testcerts"
	"github.com/runonce/runonce/runtime/serve"
)

// clientOf is a client by a kubeconfig, with its token.
func clientOf(t *testing.T, kubeconfig string) (*rest.Config, *http.Client) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	return config, client
}

// TestToken: over TCP, who has not the token gets nothing, however it is said.
func TestToken(t *testing.T) {
	t.Parallel()
	kubeconfig, end := open(t, "127.0.0.1:0", hello)
	info, err := os.Stat(kubeconfig)
	must(t, err)
	want(t, "mode", info.Mode(), 0o600)
	config, client := clientOf(t, kubeconfig)
	code, text := ask(t, client, config.Host+"/pods", nil)
	want(t, "with the kubeconfig", fmt.Sprintf("%d %s", code, text), "200 hello")
	token := config.BearerToken
	config.BearerToken = ""
	stranger, err := rest.HTTPClientFor(config)
	must(t, err)
	for name, header := range map[string]http.Header{
		"none":        {},
		"empty":       {"Authorization": {"Bearer "}},
		"wrong":       {"Authorization": {"Bearer x" + token}},
		"shorter":     {"Authorization": {"Bearer " + token[1:]}},
		"basic":       {"Authorization": {"Basic " + token}},
		"without":     {"Authorization": {token}},
		"two headers": {"Authorization": {"Bearer x", "Bearer " + token}},
		"as a cookie": {"Cookie": {"token=" + token}},
	} {
		code, text := ask(t, stranger, config.Host+"/pods?token="+token+"&access_token="+token, header)
		want(t, name, fmt.Sprintf("%d %s", code, text), "401 Unauthorized\n")
	}
	code, _ = ask(t, stranger, config.Host+"/", http.Header{"Authorization": {"bearer " + token}})
	want(t, "the scheme in lower case", code, http.StatusOK)
	plain, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(config.Host, "https://"))
	must(t, err)
	defer func() { _ = plain.Close() }()
	_, err = fmt.Fprintf(plain, "GET /pods HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\n\r\n", token)
	must(t, err)
	answer, err := io.ReadAll(plain)
	must(t, err)
	if bytes.Contains(answer, []byte("hello")) {
		t.Errorf("without TLS: %q", answer)
	}
	end()
	if _, err := os.Stat(kubeconfig); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig after the end: %v", err)
	}
}

// TestLaterKubeconfig: a server leaves the kubeconfig of a later one.
func TestLaterKubeconfig(t *testing.T) {
	t.Parallel()
	kubeconfig, end := open(t, "127.0.0.1:0", hello)
	open(t, "127.0.0.1:0", hello, func(o *serve.Options) { o.Kubeconfig = kubeconfig })
	end()
	config, client := clientOf(t, kubeconfig)
	code, _ := ask(t, client, config.Host, nil)
	want(t, "code", code, http.StatusOK)
}

// TestCertificate: one of files is used, and clients are told of it.
func TestCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	text, private, err := serve.SelfSigned("127.0.0.1")
	must(t, err)
	must(t, os.WriteFile(cert, text, 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	kubeconfig, _ := open(t, "127.0.0.1:0", hello, func(o *serve.Options) { o.CertFile, o.KeyFile = cert, key })
	config, client := clientOf(t, kubeconfig)
	code, _ := ask(t, client, config.Host+"/", nil)
	want(t, "code", code, http.StatusOK)
	want(t, "authority", string(config.CAData), string(text))

	a, err := serve.ParseAddress("127.0.0.1:0")
	must(t, err)
	_, err = serve.Listen(t.Context(), serve.Options{Address: a, CertFile: key, KeyFile: cert, Kubeconfig: filepath.Join(dir, "k")})
	if err == nil || !strings.HasPrefix(err.Error(), "reading the certificate: tls: ") {
		t.Errorf("a key as certificate: %v", err)
	}
}

// TestClientCertificate: a certificate that the right one has signed does as well as the token, and no other does.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	signer, err := testcerts.NewSigner(t.TempDir(), "signer")
	must(t, err)
	other, err := testcerts.NewSigner(t.TempDir(), "signer") // of the same name
	must(t, err)
	kubeconfig, _ := open(t, "127.0.0.1:0", hello, func(o *serve.Options) { o.ClientCAFile = signer.File })
	config, withToken := clientOf(t, kubeconfig)
	code, _ := ask(t, withToken, config.Host+"/", nil)
	want(t, "with the token", code, http.StatusOK)
	config.BearerToken = ""
	with := func(s *testcerts.Signer, name string, validity time.Duration) *http.Client {
		own := rest.CopyConfig(config)
		if s != nil {
			own.CertFile, own.KeyFile, err = s.Sign(name, validity)
			must(t, err)
		}
		client, err := rest.HTTPClientFor(own)
		must(t, err)
		return client
	}
	code, _ = ask(t, with(signer, "client", time.Hour), config.Host+"/", nil)
	want(t, "with a certificate", code, http.StatusOK)
	code, _ = ask(t, with(nil, "", 0), config.Host+"/", nil)
	want(t, "with nothing", code, http.StatusUnauthorized)
	for what, client := range map[string]*http.Client{"of another signer": with(other, "client", time.Hour), "expired": with(signer, "expired", -time.Minute)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/", nil)
		must(t, err)
		if resp, err := client.Do(r); err == nil {
			must(t, resp.Body.Close())
			t.Errorf("%s: %s", what, resp.Status)
		}
	}
	a, err := serve.ParseAddress("127.0.0.1:0")
	must(t, err)
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	for file, expect := range map[string]string{
		"none": "reading who signs the certificates of clients: open none: no such file or directory",
		empty:  "reading who signs the certificates of clients: " + empty + " has no certificate",
	} {
		_, err = serve.Listen(t.Context(), serve.Options{Address: a, ClientCAFile: file, Kubeconfig: filepath.Join(t.TempDir(), "k")})
		want(t, file, fmt.Sprint(err), expect)
	}
}
