package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/validation"
)

// kubernetes returns what Kubernetes' strict decoder and validators say of an object.
func kubernetes(t *testing.T, doc []byte, o any, validate func() field.ErrorList) []string {
	t.Helper()
	b, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	strict, err := kjson.UnmarshalStrict(b, o)
	for _, e := range strict {
		out = append(out, e.Error())
	}
	if err != nil {
		return append(out, err.Error())
	}
	for _, e := range validate() {
		out = append(out, e.Error())
	}
	return out
}

// judges returns, for each kind, Kubernetes' verdict on a document.
func judges(t *testing.T) map[string]func([]byte) []string {
	t.Helper()
	rules, err := validation.New("", "default")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func([]byte) []string{
		"Pod": func(doc []byte) []string {
			o := &v1.Pod{}
			return kubernetes(t, doc, o, func() field.ErrorList { errs, _ := rules.Pod(o); return errs })
		},
		"Deployment": func(doc []byte) []string {
			o := &appsv1.Deployment{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"StatefulSet": func(doc []byte) []string {
			o := &appsv1.StatefulSet{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"Job": func(doc []byte) []string {
			o := &batchv1.Job{}
			return kubernetes(t, doc, o, func() field.ErrorList { o.UID = "u"; return rules.Object(o) })
		},
		"CronJob": func(doc []byte) []string {
			o := &batchv1.CronJob{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"Secret": func(doc []byte) []string {
			o := &v1.Secret{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"Service": func(doc []byte) []string {
			o := &v1.Service{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"Node": func(doc []byte) []string {
			o := &v1.Node{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
		"PersistentVolumeClaim": func(doc []byte) []string {
			o := &v1.PersistentVolumeClaim{}
			return kubernetes(t, doc, o, func() field.ErrorList { return rules.Object(o) })
		},
	}
}

// ours are the messages of errors that only we find: Kubernetes accepts such objects.
var ours = []string{
	"not supported: ", "Mount options are not supported", "is not in the input", "has no key", "invalid reference format", "unknown capability",
	"contains a NUL byte", "must not contain ':'", "is out of range", "no PriorityClass named", "but PriorityClass",
	"invalid checksum", "cannot specify 64-byte", "must be lowercase", "pod rejected: ",
	"must be an absolute path", "more than the 1000",
	"together they may have", "of a file name", "of a path", "cannot be mounted in it", "nothing can be mounted in", "is a directory in every container",
	"cannot be the root of a container", "the host name would be",
}

func onlyOurs(d Diagnostic) bool {
	return slices.ContainsFunc(ours, func(m string) bool { return strings.Contains(d.Message, m) })
}

// TestDifferential changes objects at random and compares our verdict with that of Kubernetes.
func TestDifferential(t *testing.T) {
	t.Parallel()
	judges := judges(t)
	for kind, seed := range seeds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rounds := 200
			if kind == "Pod" {
				rounds = 1_200
			}
			if testing.Short() {
				rounds /= 4
			}
			differ(t, seed, judges[kind], rounds)
		})
	}
}

// TestDecodedAlike changes pods at random and decodes them in both ways.
func TestDecodedAlike(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := 1_000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		doc := mutate(t, rng, seedPod)
		docs, _ := decode.Split("f", doc)
		var got, want v1.Pod
		if len(docs) != 1 || len(decode.Into(docs[0], &got)) > 0 {
			continue
		}
		errs, err := kjson.UnmarshalStrict(docs[0].JSON(), &want)
		if err != nil || len(errs) > 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v %v: got %+v, want %+v from\n%s", errs, err, got, want, doc)
		}
	}
}

func differ(t *testing.T, seed string, judge func([]byte) []string, rounds int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	accepted, refused := 0, 0
	for range rounds {
		doc := mutate(t, rng, seed)
		want := judge(doc)
		_, err := ReadPaths(t.Context(), []string{"-"}, Options{RunCronJobs: true, Stdin: bytes.NewReader(doc)})
		if len(want) > 0 {
			refused++
			if err == nil {
				t.Fatalf("accepted, but Kubernetes says %q:\n%s", want, doc)
			}
			continue
		}
		accepted++
		var problems Diagnostics
		errors.As(err, &problems)
		for _, f := range problems {
			if !onlyOurs(f) {
				t.Fatalf("refused, but Kubernetes accepts it: %s\n%s", f, doc)
			}
		}
	}
	if accepted < rounds/20 || refused < rounds/20 {
		t.Errorf("%d accepted and %d refused: the mutations are too mild or too wild", accepted, refused)
	}
}

func seeds() map[string]string {
	const never = `{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}`
	const selected = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"v"}]}]}}`
	return map[string]string{
		"Pod":         seedPod,
		"Deployment":  `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"10%"}},"minReadySeconds":1,` + selected + `}}`,
		"StatefulSet": `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"d"},"spec":{"replicas":2,"serviceName":"s","ordinals":{"start":1},"podManagementPolicy":"Parallel",` + selected + `}}`,
		"Job":         `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","labels":{"x":"y"}},"spec":{"completions":2,"parallelism":1,"backoffLimit":3,"completionMode":"Indexed","suspend":false,"template":{"spec":` + never + `}}}`,
		"CronJob":     `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"j"},"spec":{"schedule":"@daily","concurrencyPolicy":"Allow","timeZone":"Etc/UTC","jobTemplate":{"spec":{"completions":1,"template":{"spec":` + never + `}}}}}`,
		"Secret":      `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"kubernetes.io/basic-auth","immutable":true,"data":{"username":"YQ==","password":"YQ=="},"stringData":{"more":"x"}}`,
		"Service": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","labels":{"x":"y"}},"spec":{"type":"NodePort","selector":{"app":"x"},"clusterIP":"10.0.0.10","ipFamilies":["IPv4"],` +
			`"ports":[{"name":"web","port":80,"targetPort":"http","nodePort":30080,"protocol":"TCP"},{"name":"more","port":81,"targetPort":8080}],"sessionAffinity":"ClientIP",` +
			`"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}},"externalTrafficPolicy":"Local","externalIPs":["192.0.2.1"],"publishNotReadyAddresses":true}}`,
		"Node": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"disk":"ssd"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}],"podCIDR":"10.0.0.0/24","unschedulable":false},"status":{"capacity":{"cpu":"4","memory":"8Gi"},"allocatable":{"cpu":"3"}}}`,
		"PersistentVolumeClaim": `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"x","volumeMode":"Filesystem",` +
			`"resources":{"requests":{"storage":"1Gi"},"limits":{"storage":"2Gi"}}}}`,
	}
}

const seedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","labels":{"app":"x"},"annotations":{"a":"b"}},
"spec":{"restartPolicy":"Always","terminationGracePeriodSeconds":5,"hostNetwork":false,"nodeSelector":{"disk":"ssd"},"priorityClassName":"system-node-critical",
"securityContext":{"runAsUser":1,"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},"supplementalGroups":[1]},
"tolerations":[{"key":"k","operator":"Exists","effect":"NoSchedule"}],
"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}]}}},
"initContainers":[{"name":"i","image":"busybox","command":["true"]}],
"containers":[{"name":"c","image":"busybox:1","imagePullPolicy":"IfNotPresent","command":["sh"],"args":["-c","x"],"workingDir":"/x",
"ports":[{"name":"web","containerPort":80,"hostPort":8080,"protocol":"TCP"}],
"env":[{"name":"A","value":"b"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
"resources":{"requests":{"cpu":"100m","memory":"1Mi"},"limits":{"cpu":1,"memory":"2Mi"}},
"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true,"subPath":"s"}],
"livenessProbe":{"httpGet":{"path":"/","port":"web"},"periodSeconds":3},
"lifecycle":{"preStop":{"sleep":{"seconds":1}}},
"securityContext":{"privileged":false,"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]}}}],
"volumes":[{"name":"v","emptyDir":{}},{"name":"h","hostPath":{"path":"/h","type":"Directory"}},{"name":"m","configMap":{"name":"m","optional":true,"items":[{"key":"k","path":"p","mode":256}]}}]}}`

// mutate returns the seed with one to three values changed, dropped or added.
func mutate(t *testing.T, rng *rand.Rand, seed string) []byte {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal([]byte(seed), &root); err != nil {
		t.Fatal(err)
	}
	for range 1 + rng.IntN(3) {
		change(rng, root)
	}
	var b []byte
	var err error
	if rng.IntN(2) == 0 {
		b, err = yaml.Marshal(root)
	} else {
		b, err = json.Marshal(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// change walks down at random and changes what it stops at.
func change(rng *rand.Rand, m map[string]any) {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return
	}
	k := keys[rng.IntN(len(keys))]
	for _, fixed := range []string{"apiVersion", "kind"} {
		if k == fixed {
			return
		}
	}
	v := m[k]
	if list, ok := v.([]any); ok && len(list) > 0 && rng.IntN(4) > 0 {
		i := rng.IntN(len(list))
		if inner, ok := list[i].(map[string]any); ok {
			change(rng, inner)
			return
		}
		list[i] = value(rng)
		return
	}
	if inner, ok := v.(map[string]any); ok && rng.IntN(6) > 0 {
		change(rng, inner)
		return
	}
	switch rng.IntN(5) {
	case 0:
		delete(m, k)
	case 1:
		names := []string{"name", "image", "hostPID", "hostIPC", "typo", "Name", "mode", "value", "optional", "dnsPolicy", "hostname", "defaultMode"}
		m[names[rng.IntN(len(names))]] = value(rng)
	default:
		m[k] = value(rng)
	}
}

func value(rng *rand.Rand) any {
	values := []any{
		nil, true, false, 0, 1, -1, 80, 65536, 1.5, 2147483648, 9007199254740993, "", "a", "A", "web", "..", "../x", "/abs", "a b", "x:y",
		"100m", "1Gi", "1e3", "0", "-5", "1e30", "12MB", "True", "yes", "null", "~", "08", "1_0", "TCP", "Always", "Never", "Exists", "In",
		"a/b", "example.com/thing", "UPPER", strings.Repeat("x", 64), strings.Repeat("y", 300), "é", "a\x00b", "$(X)", "Localhost", "SCTP",
		[]any{},
		[]any{"a"},
		[]any{1},
		[]any{map[string]any{}},
		map[string]any{},
		map[string]any{"a": "b"},
		map[string]any{"name": "c"},
		map[string]any{"emptyDir": map[string]any{}},
		map[string]any{"cpu": "2"},
		map[string]any{"memory": "1"},
	}
	return values[rng.IntN(len(values))]
}
