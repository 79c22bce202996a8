package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// etcdArchive is an image of Debian's etcd, which hack/setup.sh unpacks.
var etcdArchive = sync.OnceValues(func() ([]byte, error) {
	root, err := testimages.Root()
	if err != nil {
		return nil, err
	}
	packages := testimages.Debian(root)
	files, err := packages.Files("/usr/bin/etcd")
	if err != nil {
		return nil, err
	}
	libraries, err := packages.Libraries(files)
	if err != nil {
		return nil, err
	}
	files[0].Path = "/usr/local/bin/etcd"
	var b bytes.Buffer
	err = ociimage.Build(&b, ociimage.Image{
		Ref:         "localhost/etcd:3",
		Files:       append(libraries, files...),
		Config:      v1.ImageConfig{Env: []string{"PATH=/usr/local/bin"}, Cmd: []string{"/usr/local/bin/etcd"}},
		Compression: ociimage.None,
	})
	return b.Bytes(), err
})

// pki writes ca.crt, server.crt and server.key into the directory and returns the TLS
// configuration for a client.
func pki(t *testing.T, dir string) *tls.Config {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// One certificate for all: authority, server, peer and client.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	for name, body := range map[string][]byte{"ca.crt": certificate, "server.crt": certificate, "server.key": secret} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(certificate, secret)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}
