package imagestore

import "testing"

func TestNormalise(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for in, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "me/app:1": "docker.io/me/app:1",
		"localhost/box:1": "localhost/box:1", "r.example.com:5000/a/b": "r.example.com:5000/a/b:latest",
		"a:1" + digest: "docker.io/library/a" + digest,
		"":             "", "UPPER": "", "a b": "", "http://x/y": "", "a@sha256:12": "",
	} {
		got, err := Normalise(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}
