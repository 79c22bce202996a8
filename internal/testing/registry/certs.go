package registry

import (
	"crypto/ecdsa"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/testcerts"
)

// validity is how long the certificates of a test are valid.
const validity = 24 * time.Hour

// Certs is a directory with a private CA (ca.crt), and the certificates and keys that it has given
// to a registry on this machine and to its clients (client.cert, client.key).
type Certs struct {
	Dir    string
	server *ecdsa.PrivateKey
}

// CA returns the path of the CA's certificate.
func (c *Certs) CA() string { return c.path("ca.crt") }

func (c *Certs) path(name string) string { return filepath.Join(c.Dir, name) }

// NewCerts makes a CA and certificates.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	c := &Certs{Dir: t.TempDir()}
	ca, err := testcerts.NewSigner(c.Dir, "ca")
	if err == nil {
		server := testcerts.Template("registry", validity)
		server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"registry.example", "mirror.example"}
		c.server, err = ca.Issue(server, "server.crt", "server.key")
	}
	if err == nil {
		_, err = ca.Issue(testcerts.Template("client", validity), "client.cert", "client.key")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}
