package main

import (
	"errors"
	"fmt"
	"strings"
)

// step is one command of the story and what must come of it.
type step struct {
	say  string
	args []string // of runonce; nil when get is set
	get  string   // URL to fetch
	want int      // exit code
	// has are texts that must be in what comes out.
	has []string
	// retry allows for an answer that is not there at once: a server that is starting, a
	// log that is being written, a job that ends.
	retry bool
}

func story() []step {
	return []step{
		{
			say:  "Four pods: a web server with an init container, a worker of two containers, a job, a critical agent.",
			args: []string{"run", "--images-dir", "bin/demo-images", "testdata/demo/pods"},
			has:  []string{"web", "worker", "migrate", "node-agent", "Running"},
		},
		{
			say:   "The web server answers on its host port, with the page that its init container completed.",
			get:   "http://127.0.0.1:18080/",
			has:   []string{"Hello from pod web in namespace default"},
			retry: true,
		},
		{
			say:   "runonce is gone, the pods are not.",
			args:  []string{"ps"},
			has:   []string{"web", "worker", "node-agent", "Succeeded"},
			retry: true,
		},
		{
			say:   "One container of the worker reads what the other one writes.",
			args:  []string{"logs", "worker", "-c", "reader"},
			has:   []string{"read item 1"},
			retry: true,
		},
		{
			say:  "Running the same directory again changes nothing.",
			args: []string{"run", "--images-dir", "bin/demo-images", "testdata/demo/pods"},
			has:  []string{"web", "Running"},
		},
		{
			say:  "A pod that is too big for this machine is rejected, in the kubelet's words: exit code 3.",
			args: []string{"run", "testdata/demo/too-big"},
			want: 3,
			has:  []string{"giant", "Rejected", "OutOfcpu"},
		},
		{
			say:  "A pod that dies has failed: exit code 1, with the end of its log.",
			args: []string{"run", "-o", "wide", "--until", "completed", "testdata/demo/crash"},
			want: 1,
			has:  []string{"broken", "Failed", "no such host: db.internal"},
		},
		{
			say:  "Manifests with faults: exit code 2, and nothing was started.",
			args: []string{"run", "testdata/demo/faulty"},
			want: 2,
			has:  []string{"testdata/demo/faulty/web.yaml:10", "did you mean command?", "64MiB", "nothing was started"},
		},
		{
			say:  "Everything goes.",
			args: []string{"down", "--all"},
		},
		{
			say:  "Nothing is left.",
			args: []string{"ps"},
		},
	}
}

// check compares what came out with what must come out.
func (st step) check(code int, out string) error {
	var faults []error
	if code != st.want {
		faults = append(faults, fmt.Errorf("exit code %d, want %d", code, st.want))
	}
	for _, text := range st.has {
		if !strings.Contains(out, text) {
			faults = append(faults, fmt.Errorf("the output lacks %q", text))
		}
	}
	return errors.Join(faults...)
}

// command is the step as one would type it.
func (st step) command() string {
	if st.get != "" {
		return "curl " + st.get
	}
	return "bin/runonce " + strings.Join(st.args, " ")
}
