package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/atomicfile"
)

// credentials are what clients need to connect over TCP.
type credentials struct {
	certificate tls.Certificate
	authority   []byte // PEM, by which clients know the certificate
	token       string
}

// newCredentials makes a token, and a certificate of the host unless there are files of one.
func newCredentials(host string, o Options) (credentials, error) {
	c := credentials{token: rand.Text()}
	var err error
	if o.CertFile != "" {
		c.certificate, err = tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return c, fmt.Errorf("reading the certificate: %w", err)
		}
		// Clients trust the certificate itself, so that it may have been signed by anybody.
		c.authority, err = os.ReadFile(o.CertFile)
		return c, err
	}
	if c.certificate, c.authority, err = selfSigned(host); err != nil {
		return c, fmt.Errorf("making a certificate: %w", err)
	}
	return c, nil
}

// verifyClients has clients with a certificate verified, if that is wanted. One with the token needs none.
func (o Options) verifyClients(c *tls.Config) error {
	if o.ClientCAFile == "" {
		return nil
	}
	text, err := os.ReadFile(o.ClientCAFile)
	if err != nil {
		return fmt.Errorf("reading who signs the certificates of clients: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("reading who signs the certificates of clients: %s has no certificate", o.ClientCAFile)
	}
	return nil
}

// validity is how long a certificate of ours is valid. There is a new one for each start.
const validity = 10 * 365 * 24 * time.Hour

// selfSigned makes a certificate of the host, which is a name or an address.
func selfSigned(host string) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "runonce"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, DNSNames: []string{"localhost"},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if host != "localhost" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// writeKubeconfig writes the file by which clients connect, which only its owner may read, and returns its content.
func (c credentials) writeKubeconfig(path, address string) ([]byte, error) {
	type object = map[string]any
	const name = "runonce"
	text, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []object{{"name": name, "cluster": object{"server": "https://" + address, "certificate-authority-data": c.authority}}},
		"users":    []object{{"name": name, "user": object{"token": c.token}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	})
	if err == nil {
		err = atomicfile.Write(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return text, nil
}
