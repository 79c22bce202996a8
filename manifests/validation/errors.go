package validation

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/decode"
)

// maxErrors bounds the errors of one object: a ConfigMap can have 100,000 bad keys.
const maxErrors = 999

// Diagnose returns the errors of Kubernetes' validation as diagnostics. The fields of the
// object are below prefix in the document.
func Diagnose(doc decode.Document, errs field.ErrorList, prefix string) decode.Diagnostics {
	seen := map[string]bool{}
	for _, err := range errs {
		seen[err.Field+err.Detail] = true
	}
	errs = withoutFollowing(doc, errs, prefix)
	out := make(decode.Diagnostics, 0, len(errs))
	for i, err := range errs {
		if i == maxErrors {
			out = append(out, doc.Error("", fmt.Sprintf("%d more problems are not shown", len(errs)-i), ""))
			break
		}
		path := pathOf(err, prefix)
		if limitOf(err.Field) != "" && !doc.Has(path) && seen[limitOf(err.Field)+err.Detail] {
			continue // a request that defaults to its limit, which has the same error
		}
		out = append(out, doc.Error(path, body(err), cmp.Or(doc.TemplateHint(path), valueHint(err))))
	}
	return out
}

// pathOf returns the path of an error in the document.
func pathOf(err *field.Error, prefix string) string {
	switch err.Field {
	case "<nil>", "[]": // of the whole object
		return strings.TrimSuffix(prefix, ".")
	case "metadata.name", "metadata.namespace":
		return err.Field // of the workload, from which its pods get it
	}
	return prefix + strings.Replace(err.Field, "].persistentDisk", "].gcePersistentDisk", 1) // as the API has it
}

// limitOf returns the path of the limit that is the default of a request, "" for other paths.
func limitOf(path string) string {
	if limit := strings.Replace(path, ".resources.requests[", ".resources.limits[", 1); limit != path {
		return limit
	}
	return ""
}

// body returns the text of Kubernetes' error, without values that are objects or very long.
func body(err *field.Error) string {
	v := reflect.ValueOf(err.BadValue)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	const most = 300
	large := v.Kind() == reflect.Struct || v.Kind() == reflect.Pointer || (v.Kind() == reflect.String && v.Len() > most)
	if !large || err.Type == field.ErrorTypeRequired || err.Type == field.ErrorTypeForbidden {
		return err.ErrorBody()
	}
	if err.Detail == "" {
		return err.Type.String()
	}
	return fmt.Sprintf("%s: %s", err.Type, err.Detail)
}

// valueHint suggests a similar valid value.
func valueHint(err *field.Error) string {
	if strings.HasSuffix(strings.ToLower(err.Field), "mode") {
		return modeHint(err.BadValue)
	}
	value, ok := plainText(err.BadValue)
	if !ok || err.Type != field.ErrorTypeNotSupported {
		return ""
	}
	var values []string
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(err.Detail, -1) {
		values = append(values, m[1])
	}
	if value != "" && slices.Contains(values, value) {
		return "Kubernetes disables it by default"
	}
	return decode.DidYouMean(value, values)
}

// modeHint explains file modes such as 644, which is a decimal number in YAML.
func modeHint(value any) string {
	digits := fmt.Sprint(value)
	if n, err := strconv.ParseInt(digits, 8, 32); err == nil && n <= 0o777 {
		return "modes are octal: write 0" + digits
	}
	return ""
}

// plainText returns the text of any kind of string, such as v1.RestartPolicy.
func plainText(value any) (string, bool) {
	v := reflect.ValueOf(value)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.String(), v.Kind() == reflect.String
}

// podErrors removes errors that only follow from another one: the mounts of a volume with an
// error do not find it.
func podErrors(errs field.ErrorList, p *v1.Pod) field.ErrorList {
	names := make([]string, 0, len(p.Spec.Volumes))
	for _, v := range p.Spec.Volumes {
		names = append(names, v.Name)
	}
	out := make(field.ErrorList, 0, len(errs))
	for _, err := range errs {
		value, _ := plainText(err.BadValue)
		if err.Type == field.ErrorTypeNotFound && strings.Contains(err.Field, ".volumeMounts[") {
			if slices.Contains(names, value) {
				continue
			}
			if near := decode.Nearest(value, names); near != "" {
				err.Detail = fmt.Sprintf("there is a volume %q", near)
			}
		}
		out = append(out, err)
	}
	return out
}

// fractional is in the warning of an API server about fractional bytes.
const fractional = "fractional byte value"

// warningHint explains the most common warning of an API server, fractional bytes.
func warningHint(message string) string {
	if strings.Contains(message, fractional) {
		return "m is a thousandth of a byte; Mi is a mebibyte"
	}
	return ""
}
