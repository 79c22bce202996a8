package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"-n", "30,1", "-large", "300,30", "-net", "bridge", "-only", "floor,runonce embedded"})
	if err != nil {
		t.Fatal(err)
	}
	want := []job{{netBridge, 1}, {netBridge, 30}, {netBridge, 300}}
	if got := o.jobs(); !slices.Equal(got, want) {
		t.Errorf("jobs %v, want %v", got, want)
	}
	if !o.has(floorName) || o.has(podmanName) || o.settle != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestQuickMeasuresOnlyRatios(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"-quick", "-rounds", "9"})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.jobs(); !slices.Equal(got, []job{{netHost, 1}, {netHost, 30}}) || o.rounds != 3 || o.has(daemonName) || !o.has(embeddedName) {
		t.Errorf("got %+v", o)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`"0" is not a valid number`:  {"-n", "1,0"},
		`"x" is not a valid number`:  {"-large", "x"},
		`there is no network "vlan"`: {"-net", "host,vlan"},
		`there is no variant "fast"`: {"-only", "fast"},
		`must not be empty`:          {"-n", ","},
	} {
		if _, err := parseOptions(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", args, err, want)
		}
	}
}
