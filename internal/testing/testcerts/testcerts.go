// Package testcerts makes certificates of clients for tests, and those who sign them.
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

// Signer signs certificates of clients.
type Signer struct {
	// File has its own certificate.
	File string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewSigner makes a signer whose files are in the directory.
func NewSigner(dir, name string) (*Signer, error) {
	s := &Signer{dir: dir}
	s.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	s.File, _, err = s.write(name, s.cert, s.key)
	return s, err
}

// Sign makes a certificate for a client, valid for the given time from now on, and returns the files of it and its key.
func (s *Signer) Sign(name string, validity time.Duration) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	return s.write(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
}

// write signs a certificate and writes it, with its key.
func (s *Signer) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) (certFile, keyFile string, err error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, s.cert, &key.PublicKey, s.key)
	if err != nil {
		return "", "", err
	}
	own, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key")
	return certFile, keyFile, errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: own}), 0o600),
	)
}
