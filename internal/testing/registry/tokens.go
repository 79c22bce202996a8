package registry

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// RefreshToken is what a server of tokens takes instead of the password of User.
const RefreshToken = "refresh"

// public begins the names of repositories that anybody may pull.
const public = "public/"

// The names of the parties that tokens are for.
const (
	tokenService = "registry"
	tokenIssuer  = "tokens"
)

// access is what a token allows (the registry's token specification).
type access struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// tokens gives tokens to those who may use a registry.
type tokens struct {
	t     testing.TB
	url   string
	certs *Certs
	chain string // the certificate of its key
}

// newTokens starts a server of tokens.
func newTokens(t testing.TB) *tokens {
	t.Helper()
	s := &tokens{t: t, certs: NewCerts(t)}
	data, err := os.ReadFile(s.certs.path("server.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no certificate")
	}
	s.chain = base64.StdEncoding.EncodeToString(block.Bytes)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP answers those who ask with a password (GET) or as OAuth 2 does (POST).
func (s *tokens) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	known := user == User && password == Password
	switch req.FormValue("grant_type") {
	case "password":
		known = req.FormValue("username") == User && req.FormValue("password") == Password
	case "refresh_token":
		known = req.FormValue("refresh_token") == RefreshToken
	}
	var allowed []access
	for _, scope := range strings.Fields(strings.Join(req.Form["scope"], " ")) {
		parts := strings.Split(scope, ":")
		a := access{parts[0], parts[1], []string{"pull"}}
		if known || strings.HasPrefix(a.Name, public) {
			allowed = append(allowed, a)
		}
	}
	if !known && (user != "" || req.Method == http.MethodPost) {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	token := s.sign(allowed)
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// sign returns a token (RFC 7519).
func (s *tokens) sign(allowed []access) string {
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			s.t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	now := time.Now()
	text := encode(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{s.chain}}) + "." + encode(map[string]any{
		"iss": tokenIssuer, "aud": tokenService, "access": allowed,
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.certs.server, sum[:])
	if err != nil {
		s.t.Error(err)
		return ""
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
