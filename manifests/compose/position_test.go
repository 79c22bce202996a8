package compose

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

func TestPositions(t *testing.T) {
	t.Parallel()
	s := readSources([]types.ConfigFile{{Filename: "/nowhere/c.yaml", Content: []byte(`services:
  web:
    ports:
    - 8080:80
    - target: 443
      published: 8443
    environment:
    - A=a
    - B
    extra_hosts: ["h=1.2.3.4"]
  loop: &loop
    image: x
    <<: [*loop, *loop]
  one: {extends: two}
  two: {extends: {service: one}}
`)}}, func(path string) string { return path[len("/nowhere/"):] })
	for _, c := range []struct {
		at   place
		line int
	}{
		{place{"services", "web", "ports", "[80]"}, 4},
		{place{"services", "web", "ports", "[443]"}, 5},
		{place{"services", "web", "ports", "[9]"}, 3}, // the list
		{place{"services", "web", "environment", "A"}, 8},
		{place{"services", "web", "environment", "B"}, 9},
		{place{"services", "web", "extra_hosts", "[h]"}, 10},
		{place{"services", "web", "none", "deeper"}, 2},
		{place{"services", "loop", "image"}, 12},
		{place{"services", "loop", "none"}, 11},
		{place{"services", "one", "image"}, 14},
		{place{"volumes", "x"}, 0},
		{nil, 0},
	} {
		if name, line := s.find(c.at); name != "c.yaml" || line != c.line {
			t.Errorf("%s: %s:%d, want %d", c.at, name, line, c.line)
		}
	}
	if got := (place{"services", "web", "ports", "[80]", "mode"}).String(); got != "services.web.ports[80].mode" {
		t.Error(got)
	}
}
