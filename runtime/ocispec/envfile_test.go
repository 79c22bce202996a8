package ocispec

import (
	"strings"
	"testing"
)

func TestEnvFileValue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, want string
		found            bool
		wantErr          string
	}{
		{name: "plain", text: "X='1'", want: "1", found: true},
		{name: "among others", text: "A='a'\n\n # comment\nX='x y'\nB='b'\n", want: "x y", found: true},
		{name: "indented, with a comment", text: "  \tX='1' # one", want: "1", found: true},
		{name: "the first counts", text: "X='1'\nX='2'\n", want: "1", found: true},
		{name: "literally", text: `X='$HOME \n "q" #no'`, want: `$HOME \n "q" #no`, found: true},
		{name: "several lines", text: "X='one\n\n# two\nthree'\n", want: "one\n\n# two\nthree", found: true},
		{name: "carriage returns", text: "A='a'\r\nX='1'\r\n", want: "1", found: true},
		{name: "not there", text: "A='X=1'\n"},
		{name: "empty file"},
		{name: "empty value", text: "X=''\n"},
		{name: "a blank after the sign", text: "X= '1'\n"},
		{name: "a blank after another's", text: "A= '1'\nX='2'\n", want: "2", found: true},
		{name: "a fault after it", text: "X='1'\nrubbish\n", want: "1", found: true},
		{name: "no sign", text: "\nrubbish\nX='1'\n", wantErr: "line 2: missing '='"},
		{name: "no name", text: "='1'\n", wantErr: "line 1: empty variable name"},
		{name: "a blank before the sign", text: "X ='1'\n", wantErr: "line 1: whitespace before '=' is not allowed"},
		{name: "no quotes", text: "X=1\n", wantErr: "line 1: value must be enclosed in single quotes"},
		{name: "nothing at all", text: "X=\n", wantErr: "line 1: value must be enclosed in single quotes"},
		{name: "more after the quote", text: "X='1'2\n", wantErr: "line 1: unexpected content after the closing quote"},
		{name: "open", text: "X='1\n2\n", wantErr: "line 2: unclosed single quote"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, found, err := envFileValue(tt.text, "X")
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Fatalf("error %v, want %s", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want || found != tt.found {
				t.Errorf("%q, %v, %v, want %q, %v", got, found, err, tt.want, tt.found)
			}
		})
	}
}

func FuzzEnvFileValue(f *testing.F) {
	f.Add("A='a'\nX='1\n2' # c\n", "X")
	f.Add("X= '1'\r\n#\n", "A")
	f.Fuzz(func(t *testing.T, text, name string) {
		value, found, err := envFileValue(text, name)
		if found != (value != "") || (err != nil && found) {
			t.Errorf("%q, %v, %v", value, found, err)
		}
		if found && !strings.Contains(strings.ReplaceAll(text, "\r", ""), strings.ReplaceAll(value, "\r", "")) {
			t.Errorf("%q is not in the text", value)
		}
	})
}
