package admit

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name v1.ResourceName
		in   string
		want int64
	}{
		{"cpu", "1", 1000},
		{"cpu", "1n", 1},
		{"cpu", "1500u", 2},
		{"memory", "1500m", 2},
		{"memory", "1Gi", 1 << 30},
		{"memory", "-1", 0},
		{"memory", "9223372036854775807", math.MaxInt64},
		{"memory", "10E", math.MaxInt64},
		{"cpu", "9223372036854775807", math.MaxInt64},
	} {
		t.Run(string(test.name)+"="+test.in, func(t *testing.T) {
			t.Parallel()
			if got := amount(test.name, resource.MustParse(test.in)); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestSubtract(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		q     string
		by    string
		wants string
	}{
		{"some", "1Gi", "24Mi", "1000Mi"},
		{"all", "1Gi", "1Gi", "0"},
		{"more", "1Gi", "2Gi", "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q := resource.MustParse(test.q)
			got := subtract(q, resource.MustParse(test.by))
			if got.String() != test.wants || got.Format != resource.BinarySI || q.String() != test.q {
				t.Errorf("%s, want %s", got.String(), test.wants)
			}
		})
	}
}

func TestParseResources(t *testing.T) {
	t.Parallel()
	got, err := ParseResources("cpu=2, memory=4Gi,example.com/gpu=1")
	if err != nil {
		t.Fatal(err)
	}
	want := v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "example.com/gpu": resource.MustParse("1")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, test := range []struct{ in, want string }{
		{"cpu", `resource "cpu": must be NAME=QUANTITY`},
		{"cpu=", `resource "cpu=": must be NAME=QUANTITY`},
		{"cpu=1,,", `resource "": must be NAME=QUANTITY`},
		{"=1", `resource "=1": must be NAME=QUANTITY`},
		{"cpu=1,cpu=2", `resource "cpu": given twice`},
		{"cpu=-1", `resource cpu=-1: must not be negative`},
		{"cpu=1e999999", `resource cpu=1e999999: too large`},
		{"cpu=" + strings.Repeat("1", 65), `resource cpu=` + strings.Repeat("1", 65) + `: a quantity has at most 64 characters`},
		{"a b=1", `resource name "a b": `},
		{"cpu=one", `resource cpu=one: quantities must match`},
	} {
		t.Run(test.in, func(t *testing.T) {
			t.Parallel()
			if _, err := ParseResources(test.in); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"1", "100m", "1Gi", "10E", "1n", "0.1", "1e30", "-5", "9223372036854775807", "9223372036854775.8071"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 64 {
			return
		}
		q, err := resource.ParseQuantity(s)
		if err != nil || !countable(q) {
			return // no input has it
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			got := amount(name, q)
			if got < 0 || got == 0 != (q.Sign() <= 0) {
				t.Fatalf("%s: %d", s, got)
			}
			if got > math.MaxInt64/2000 {
				continue
			}
			want := q.Value()
			if name == v1.ResourceCPU {
				want = q.MilliValue()
			}
			if q.Sign() > 0 && got != want {
				t.Fatalf("%s as %s: %d, want %d", s, name, got, want)
			}
		}
	})
}

func FuzzParseResources(f *testing.F) {
	for _, s := range []string{"cpu=2,memory=4Gi", "cpu=1e9", "a/b=1", "=", ",", "cpu=9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseResources(s)
		if err != nil {
			return
		}
		for name, q := range list {
			if n := amount(name, q); n < 0 {
				t.Errorf("%s: %d", s, n)
			}
			subtract(q, q) // whatever is read can be counted with
		}
	})
}
