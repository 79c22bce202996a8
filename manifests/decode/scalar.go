package decode

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Resolve gives a plain scalar its type as Kubernetes' YAML library (go-yaml v2 behind
// sigs.k8s.io/yaml) does: YAML 1.1 booleans and octal numbers, and underscores in numbers.
// The text is what JSON holds; ok is false for infinities and NaN, which JSON cannot hold.
func Resolve(s string) (kind Kind, text string, ok bool) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Null, "null", true
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return Bool, "true", true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return Bool, "false", true
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return Number, s, false
	}
	switch c := s[0]; {
	case c == '.':
		return resolveFloat(s, s)
	case c >= '0' && c <= '9', c == '+', c == '-':
		return resolveNumber(s)
	}
	return String, s, true
}

func resolveNumber(s string) (Kind, string, bool) {
	if isDate(s) {
		return String, s, true
	}
	plain := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
		return Number, strconv.FormatInt(i, 10), true
	}
	if u, err := strconv.ParseUint(plain, 0, 64); err == nil {
		return Number, strconv.FormatUint(u, 10), true
	}
	if !floatShaped(plain) {
		return String, s, true
	}
	return resolveFloat(s, plain)
}

func resolveFloat(s, plain string) (Kind, string, bool) {
	f, err := strconv.ParseFloat(plain, 64)
	if err != nil {
		return String, s, true
	}
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return Number, s, false
	}
	b, err := json.Marshal(f)
	if err != nil {
		return Number, s, false
	}
	return Number, string(b), true
}

// floatShaped says whether s is [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?, the
// only floats that YAML knows: strconv also takes hexadecimal ones and "infinity".
func floatShaped(s string) bool {
	s = strings.TrimLeft(s[:1], "+-") + s[1:]
	whole := digits(s)
	s = s[whole:]
	if strings.HasPrefix(s, ".") {
		frac := digits(s[1:])
		if whole+frac == 0 {
			return false
		}
		s = s[1+frac:]
	} else if whole == 0 {
		return false
	}
	if s == "" {
		return true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && digits(s) == len(s)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// isDate says whether s looks like a YAML timestamp, which stays a string. Only dates
// would be mistaken for something else: 2001-01-01 is no number either, so the shape
// is enough.
func isDate(s string) bool {
	return digits(s) == 4 && len(s) > 4 && s[4] == '-'
}

// resolveKey gives a plain map key its text, as sigs.k8s.io/yaml does; ok is false for
// keys that cannot be a string.
func resolveKey(s string) (key string, ok bool) {
	kind, text, fine := Resolve(s)
	switch kind {
	case String, Bool:
		return text, true
	case Number:
		plain := strings.ReplaceAll(s, "_", "")
		if _, err := strconv.ParseInt(plain, 0, 64); err == nil {
			return text, true
		}
		f, err := strconv.ParseFloat(plain, 64)
		if _, isInt := strconv.ParseUint(plain, 0, 64); isInt == nil || err != nil || !fine {
			return "", false
		}
		return strconv.FormatFloat(f, 'g', -1, 32), true
	case Null, Seq, Map:
	}
	return "", false
}
