package manifests

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Headers returns the headers of requests for URLs, given as "NAME: VALUE", and those in files with one in each line.
// Errors have nothing of them but the file and the line, because they may be secret.
func Headers(lines, files []string) (http.Header, error) {
	all := http.Header{}
	for _, line := range lines {
		if message := addHeader(all, line); message != "" {
			return nil, errors.New(message)
		}
	}
	var problems Diagnostics
	for _, file := range files {
		problems = append(problems, readHeaders(file, all)...)
	}
	return all, problems.Err()
}

// readHeaders adds the headers in a file. Empty lines and those that begin with # say nothing.
func readHeaders(file string, to http.Header) (problems Diagnostics) {
	data, problems := readSettings(file)
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text := strings.TrimSpace(string(text))
		if text == "" || text[0] == '#' {
			continue
		}
		if message := addHeader(to, text); message != "" {
			problems = append(problems, Diagnostic{File: quoteOdd(file), Line: line, Message: message, Severity: SeverityError})
		}
	}
	return problems
}

// addHeader adds the header in a line, or says what is wrong with it.
func addHeader(to http.Header, line string) string {
	name, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case !ok || value == "":
		return "a header is written as NAME: VALUE"
	case !httpguts.ValidHeaderFieldName(name):
		return "the name of a header has no spaces and only some punctuation marks"
	case !httpguts.ValidHeaderFieldValue(value):
		return "the value of a header has no control characters"
	case strings.EqualFold(name, "Host"):
		return "the header Host follows from the URL"
	}
	to.Add(name, value)
	return ""
}

// servers returns the servers of the URLs among the paths, each once.
func servers(paths []string) (all []string) {
	seen := map[string]bool{}
	for _, p := range paths {
		if at := serverOf(p); at != "" && !seen[at] {
			seen[at] = true
			all = append(all, at)
		}
	}
	return all
}

// maxRedirects is that of http.Client.
const maxRedirects = 10

// redirected has a client that follows redirects send headers to the first server only: it leaves out some of them by
// itself, but neither those that have other names nor the address with its query.
func redirected(headers http.Header) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, before []*http.Request) error {
		if len(before) >= maxRedirects {
			return errors.New("more than 10 redirects")
		}
		if first := before[0].URL; next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
			next.Header.Del("Referer")
			for name := range headers {
				next.Header.Del(name)
			}
		}
		return nil
	}
}
