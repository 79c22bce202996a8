package image

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// pullSecret has a user for each of the addresses, named after it.
func pullSecret(suffix string, addresses ...string) *v1.Secret {
	var auths []string
	for _, a := range addresses {
		auths = append(auths, fmt.Sprintf("%q: {%q: %q}", a, "auth", base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(a, ":", "!")+suffix+":p:w"))))
	}
	return &v1.Secret{
		Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {` + strings.Join(auths, ", ") + `}}`)},
	}
}

func TestOfSecrets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		secrets []*v1.Secret
		image   string
		want    []string // users
	}{
		{"none", nil, "r.example/x", nil},
		{"host", []*v1.Secret{pullSecret("", "r.example")}, "r.example/team/x:1", []string{"r.example"}},
		{"another host", []*v1.Secret{pullSecret("", "s.example")}, "r.example/x", nil},
		{"scheme and version", []*v1.Secret{pullSecret("", "https://r.example/v2/")}, "r.example/x", []string{"https!//r.example/v2/"}},
		{"port", []*v1.Secret{pullSecret("", "r.example:5000", "r.example")}, "r.example:5000/x", []string{"r.example!5000"}},
		{"wildcard", []*v1.Secret{pullSecret("", "*.example", "*.*.example")}, "r.example/x", []string{"*.example"}},
		{"wildcard in a part", []*v1.Secret{pullSecret("", "r*.example")}, "r12.example/x", []string{"r*.example"}},
		{"path is a prefix", []*v1.Secret{pullSecret("", "r.example/te", "r.example/other")}, "r.example/team/x", []string{"r.example/te"}},
		{
			"the more specific first",
			[]*v1.Secret{pullSecret("", "r.example", "r.example/team/x", "r.example/team")},
			"r.example/team/x",
			[]string{"r.example/team/x", "r.example/team", "r.example"},
		},
		{"secrets in order", []*v1.Secret{pullSecret("1", "r.example"), pullSecret("2", "r.example")}, "r.example/x", []string{"r.example1", "r.example2"}},
		{"default registry", []*v1.Secret{pullSecret("", "https://index.docker.io/v1/")}, "busybox", []string{"https!//index.docker.io/v1/"}},
		{"default registry by its short name", []*v1.Secret{pullSecret("", "docker.io")}, "team/x:1", []string{"docker.io"}},
		{"default registry, another image", []*v1.Secret{pullSecret("", "https://index.docker.io/v1/")}, "r.example/x", nil},
		{
			"old type",
			[]*v1.Secret{{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"r.example": {"username": "u", "password": "p"}}`)}}},
			"r.example/x",
			[]string{"u"},
		},
		{
			"no padding",
			[]*v1.Secret{{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"r.example": {"auth": "dTpwdw"}}`)}}},
			"r.example/x",
			[]string{"u"},
		},
		{"of another type", []*v1.Secret{{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{`)}}}, "r.example/x", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			all, err := OfSecrets(tc.secrets, tc.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				got = append(got, c.User)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestBrokenPullSecrets(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"auths": `: `pull secret "ns/s": .dockerconfigjson: unexpected end`,
		`{"auths": {"r.example": {"auth": "!"}}}`:    "auth is not base64",
		`{"auths": {"r.example": {"auth": "dQ=="}}}`: "base64 of user:password",
	} {
		s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(config)}}
		s.Namespace, s.Name = "ns", "s"
		if _, err := OfSecrets([]*v1.Secret{s}, "r.example/x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
}
