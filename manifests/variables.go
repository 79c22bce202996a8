package manifests

import (
	"bytes"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Variables returns a function for Options. Of several values of a variable it takes that of the
// environment, given as KEY=VALUE, unless process is false, else that of the last file.
func Variables(environ, files []string, process bool) (func(name string) (string, bool), error) {
	values, own := map[string]string{}, map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		own[name] = value
	}
	problems := make(Diagnostics, 0, len(files))
	for _, file := range files {
		problems = append(problems, readVariables(file, own, values)...)
	}
	return func(name string) (string, bool) {
		if value, ok := own[name]; ok && process {
			return value, true
		}
		value, ok := values[name]
		return value, ok
	}, problems.Err()
}

// readVariables adds the variables of a file in the format of "docker run --env-file": KEY=VALUE in
// each line, where VALUE is everything after the sign, quotes included, or KEY, which takes the
// value of the environment. Empty lines and those that begin with # say nothing.
func readVariables(file string, own, values map[string]string) (problems Diagnostics) {
	data, problems := readSettings(file)
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text := strings.TrimLeft(strings.TrimRight(string(text), "\r\n"), " \t")
		if text == "" || text[0] == '#' {
			continue
		}
		name, value, assigned := strings.Cut(text, "=")
		message := ""
		switch {
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			message = "not UTF-8 text"
		case name == "":
			message = "no name before ="
		case strings.ContainsFunc(name, unicode.IsSpace):
			message = "the name of a variable has no spaces"
		case assigned:
			values[name] = value
		default:
			if value, ok := own[name]; ok {
				values[name] = value
			}
		}
		if message != "" {
			problems = append(problems, Diagnostic{File: quoteOdd(file), Line: line, Message: message, Hint: "write NAME=VALUE", Severity: SeverityError})
		}
	}
	return problems
}

// readSettings reads a file that is none of the input, without a byte order mark.
func readSettings(file string) ([]byte, Diagnostics) {
	size := int64(0)
	if isPipe(file) || file == os.DevNull {
		size = -1
	}
	data, problems := onDisk(file, size).open()
	return bytes.TrimPrefix(data, []byte("\ufeff")), problems
}
