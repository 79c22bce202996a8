package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Certs is a directory with a private CA (ca.crt), and the certificates and keys that it has given
// to a registry on this machine and to its clients (client.cert, client.key).
type Certs struct {
	Dir    string
	key    *ecdsa.PrivateKey // of the CA
	server *ecdsa.PrivateKey
}

// CA returns the path of the CA's certificate.
func (c *Certs) CA() string { return c.path("ca.crt") }

func (c *Certs) path(name string) string { return filepath.Join(c.Dir, name) }

// NewCerts makes a CA and certificates.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	c := &Certs{Dir: t.TempDir()}
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	ca := template("test CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage, ca.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	c.key = c.issue(t, ca, ca, "ca.crt", "ca.key")
	server := template("registry")
	server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"registry.example", "mirror.example"}
	c.server = c.issue(t, server, ca, "server.crt", "server.key")
	c.issue(t, template("client"), ca, "client.cert", "client.key")
	return c
}

// issue writes a certificate, signed by the CA or at first by itself, and its key.
func (c *Certs) issue(t testing.TB, cert, ca *x509.Certificate, files ...string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := c.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, c.Dir, files[0], string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, c.Dir, files[1], string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return key
}
