// Package testcerts makes certificates for tests, and those who sign them.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Signer signs certificates.
type Signer struct {
	// File has its own certificate.
	File string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewSigner makes a signer whose files are in the directory: NAME.crt and NAME.key, and those of what it signs.
func NewSigner(dir, name string) (*Signer, error) {
	s := &Signer{dir: dir, File: filepath.Join(dir, name+".crt"), cert: Template(name, 24*time.Hour)}
	s.cert.IsCA, s.cert.BasicConstraintsValid, s.cert.KeyUsage, s.cert.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	var err error
	s.key, err = s.Issue(s.cert, name+".crt", name+".key")
	return s, err
}

// Template returns a certificate to issue, of a server or a client, valid from an hour ago for the given time from now on.
func Template(name string, validity time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// Sign issues a certificate for a client as NAME.crt and NAME.key, and returns these files.
func (s *Signer) Sign(name string, validity time.Duration) (certFile, keyFile string, err error) {
	_, err = s.Issue(Template(name, validity), name+".crt", name+".key")
	return filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key"), err
}

// Issue signs a certificate and writes it, with its key, into files of these names. The first one of a signer is its own.
func (s *Signer) Issue(cert *x509.Certificate, certName, keyName string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signer := s.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, s.cert, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, errors.Join(
		os.WriteFile(filepath.Join(s.dir, certName), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(s.dir, keyName), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	)
}
