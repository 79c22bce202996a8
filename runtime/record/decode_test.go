package record_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/record"
)

// put writes the text as the record of the pod a, beside a pod b.
func put(t *testing.T, text string) (s *record.Store, path string) {
	t.Helper()
	root := t.TempDir()
	s = record.Open(root, root)
	start(t, s, "a")
	start(t, s, "b")
	path = filepath.Join(s.Dir("uid-a"), "pod.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, path
}

// TestEarlierRecords: records that earlier builds have written are read completely.
func TestEarlierRecords(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/version1/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := put(t, string(text))
		p, err := s.Load("uid-a")
		if err != nil {
			t.Fatal(err)
		}
		if p.Incomplete() {
			t.Errorf("%s: %+v", file, p.Failed)
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]any
		if err := json.Unmarshal(text, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &after); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s is read in part (-file +read):\n%s", file, diff)
		}
	}
}

// TestUnusableRecord: a record that cannot be used is that of a pod that has failed. What can be
// read of it counts, and other pods are as they were.
func TestUnusableRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text, podName, reason, message string
		attachment                     string
	}{
		"newer": {
			text:    `{"version":2,"pod":{"metadata":{"name":"a","namespace":"x","uid":"uid-a"}},"attachment":{"uid":"uid-a"},"owners":[1],"started":"soon"}`,
			podName: "x/a", reason: "RecordUnsupported", message: "has version 2, but this version of runonce supports only 1", attachment: `{"uid":"uid-a"}`,
		},
		"newer, another pod":  {text: `{"version":3,"pod":7}`, podName: "default/uid-a", reason: "RecordUnsupported", message: "has version 3"},
		"a version with text": {text: `{"version":"2b"}`, podName: "default/uid-a", reason: "RecordUnsupported", message: "supports only 1"},
		"the first format":    {text: `{"kind":"Pod","metadata":{"name":"a","namespace":"x","uid":"uid-a"}}`, podName: "x/a", reason: "RecordUnsupported", message: "has version 0"},
		"without a pod":       {text: `{"version":1}`, podName: "default/uid-a", reason: "RecordDamaged", message: "the record has no pod"},
		"a field of another type": {
			text:    `{"version":1,"pod":{"metadata":{"name":"a","namespace":"x","uid":"uid-a"}},"devices":7,"attachment":{}}`,
			podName: "x/a", reason: "RecordDamaged", message: "cannot unmarshal number into Go struct field", attachment: `{}`,
		},
		"empty": {podName: "default/uid-a", reason: "RecordDamaged", message: "uid-a/pod.json: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := put(t, tt.text)
			all, err := s.List()
			if err != nil || len(all) != 2 {
				t.Fatalf("%d records, %v", len(all), err)
			}
			p, err := s.Load("uid-a")
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Pod.Namespace + "/" + p.Pod.Name; got != tt.podName || p.Pod.UID != "uid-a" || p.Started.IsZero() || string(p.Attachment) != tt.attachment {
				t.Errorf("pod %s, %+v", got, p)
			}
			if !p.Incomplete() || p.Failed.Reason != tt.reason || !strings.Contains(p.Failed.Message, tt.message) || !strings.Contains(p.Failed.Message, path) {
				t.Errorf("failed: %+v", p.Failed)
			}
			if b, err := s.Load("uid-b"); err != nil || b.Failed != nil {
				t.Errorf("the other pod: %+v, %v", b, err)
			}
		})
	}
}

// TestOtherVersionIsKept: a record of another version is not changed, by no run, until the pod is removed.
// Then the pod can be run again.
func TestOtherVersionIsKept(t *testing.T) {
	t.Parallel()
	const text = `{"version":2,"pod":{"metadata":{"name":"a","namespace":"default","uid":"uid-a"}}}`
	s, path := put(t, text)
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.Dir("uid-a")), "README"), nil, 0o600); err != nil {
		t.Fatal(err) // is no pod
	}
	run := s.NewRun()
	if err := run.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := run.Reserve([]*v1.Pod{pod("a"), pod("b")}); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Update("uid-a", func(p *record.Pod) error { p.FirstUserID = 7; return nil }); err != nil || p.FirstUserID != 7 {
		t.Errorf("changed: %+v, %v", p, err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the record is %s, %v", got, err)
	}
	if err := s.Remove("uid-a"); err != nil {
		t.Fatal(err)
	}
	start(t, s, "a")
	if p, err := s.Load("uid-a"); err != nil || p.Failed != nil || p.Version != record.Version {
		t.Errorf("%+v, %v", p, err)
	}
}
