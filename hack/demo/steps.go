package main

import (
	"errors"
	"fmt"
	"strings"
)

// step is one command of the demo and its expected result.
type step struct {
	title string
	args  []string // of runonce; nil when get is set
	get   string   // URL to fetch
	want  int      // exit code
	// has are texts that the output must contain.
	has []string
	// retry is for results that may take a moment: a server that is starting, a log that
	// is being written, a job that is finishing.
	retry bool
}

func steps() []step {
	return []step{
		{
			title: "Four pods: a web server with an init container, a worker with two containers, a job and a critical agent.",
			args:  []string{"run", "--images-dir", "bin/demo-images", "testdata/demo/pods"},
			has:   []string{"web", "worker", "migrate", "node-agent", "Running"},
		},
		{
			title: "The web server is reachable on its host port and serves the page that its init container rendered.",
			get:   "http://127.0.0.1:18080/",
			has:   []string{"Hello from pod web in namespace default"},
			retry: true,
		},
		{
			title: "runonce has exited; the pods are still running.",
			args:  []string{"ps"},
			has:   []string{"web", "worker", "node-agent", "Succeeded"},
			retry: true,
		},
		{
			title: "One container of the worker reads what the other writes.",
			args:  []string{"logs", "worker", "-c", "reader"},
			has:   []string{"read item 13"}, // so many that it is always shortened
			retry: true,
		},
		{
			title: "Running the same directory again changes nothing.",
			args:  []string{"run", "--images-dir", "bin/demo-images", "testdata/demo/pods"},
			has:   []string{"web", "Running"},
		},
		{
			title: "A pod that is too big for this machine is rejected with the kubelet's message: exit code 3.",
			args:  []string{"run", "testdata/demo/too-big"},
			want:  3,
			has:   []string{"giant", "Rejected", "OutOfcpu"},
		},
		{
			title: "A pod that crashes has failed: exit code 1, and the report shows the end of its log.",
			args:  []string{"run", "--until", "completed", "testdata/demo/crash"},
			want:  1,
			has:   []string{"broken", "Failed", "exited with code 7", "no such host: db.internal"},
		},
		{
			title: "Invalid manifests: exit code 2, and nothing is started.",
			args:  []string{"run", "testdata/demo/invalid"},
			want:  2,
			has:   []string{"testdata/demo/invalid/web.yaml:10", "did you mean command?", "64MiB", "nothing was started"},
		},
		{
			title: "Remove all pods.",
			args:  []string{"down", "--all"},
		},
		{
			title: "Nothing is left.",
			args:  []string{"ps"},
		},
	}
}

// check compares the exit code and the output with the expected ones.
func (st step) check(code int, out string) error {
	var errs []error
	if code != st.want {
		errs = append(errs, fmt.Errorf("exit code %d, want %d", code, st.want))
	}
	for _, text := range st.has {
		if !strings.Contains(out, text) {
			errs = append(errs, fmt.Errorf("the output does not contain %q", text))
		}
	}
	return errors.Join(errs...)
}

// command is the step as a user would type it.
func (st step) command() string {
	if st.get != "" {
		return "curl " + st.get
	}
	return "bin/runonce " + strings.Join(st.args, " ")
}
