package serve

import "crypto/x509"

// MaxStrangers is how many connections there may be without the token.
const MaxStrangers = maxStrangers

// SelfSigned makes a certificate of a host, and returns it as PEM and its key.
func SelfSigned(host string) (text, key []byte, err error) {
	c, text, err := selfSigned(host)
	if err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	return text, key, err
}
