package manifests

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

var (
	// gitAddress is one that git and other tools know: git::URL, URL.git, git@HOST:PATH.
	gitAddress = regexp.MustCompile(`^git::|^git(\+[a-z]+)?://|^ssh://|^[A-Za-z0-9_.-]+@[^/]+:|^https?://[^/]+/[^?#]*\.git/?([?#]|$)`)
	scheme     = regexp.MustCompile(`^([a-z][a-z0-9+.-]*)://`)
)

// elsewhere returns the error of a path that names something that has to be fetched by another program, ok if there is
// no such file here.
func elsewhere(p string) (f inputFile, ok bool) {
	if _, err := os.Lstat(p); err == nil {
		return f, false
	}
	at := scheme.FindStringSubmatch(p)
	switch {
	case strings.HasPrefix(p, "oci://"):
		return failed(Shown(p), "artifacts in registries are not read", fmt.Sprintf("oras pull -o DIR %s && runonce run DIR", strings.TrimPrefix(Shown(p), "oci://"))), true
	case gitAddress.MatchString(p):
		repository := Shown(strings.TrimPrefix(p, "git::"))
		return failed(Shown(p), "git repositories are not read", fmt.Sprintf("git clone --depth 1 %s DIR && runonce run DIR", repository)), true
	case at != nil && !isURL(p):
		return failed(Shown(p), fmt.Sprintf("addresses that begin with %s:// are not read", at[1]), "fetch it first, and pass the file"), true
	}
	return f, false
}

// Shown returns a path as messages have it: of a URL only what is not secret.
func Shown(p string) string {
	if rest, ok := strings.CutPrefix(p, "git::"); ok {
		return "git::" + Shown(rest)
	}
	if !scheme.MatchString(p) {
		return p
	}
	u, err := url.Parse(p)
	if err != nil {
		return scheme.FindString(p) + "..."
	}
	return nameOf(u)
}

// nameOf returns the address without what may be secret: the password, or a name without one, and the query.
func nameOf(u *url.URL) string {
	shown := *u
	if shown.RawQuery != "" {
		shown.RawQuery = "..."
	}
	if password, _ := shown.User.Password(); shown.User != nil && password == "" && strings.Contains(u.Scheme, "http") {
		shown.User = url.User("xxxxx")
	}
	return shown.Redacted()
}

// serverOf returns the scheme, host and port of a URL, "" of anything else.
func serverOf(p string) string {
	if u, err := url.Parse(p); err == nil && isURL(p) {
		return u.Scheme + "://" + u.Host
	}
	return ""
}
