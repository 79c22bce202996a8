package cmd_test

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// interruption is a signal to the next runonce.
type interruption struct {
	signal syscall.Signal
	after  time.Duration
	when   *regexp.Regexp // what its standard error matches before, instead of after
}

func (s *story) interrupt(ts *testscript.TestScript, args []string) {
	var err error
	i := interruption{signal: map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM}[args[1]]}
	if i.after, err = time.ParseDuration(args[0]); err != nil {
		i.when, err = regexp.Compile(args[0])
		ts.Check(err)
	}
	if i.signal == 0 {
		ts.Fatalf("signal %q: must be HUP, INT or TERM", args[1])
	}
	s.interruption = &i
}

// begin lets the signal come at its time, until end is called, and returns what the standard error goes to.
func (i *interruption) begin(signals chan<- os.Signal, stderr *bytes.Buffer) (to io.Writer, end func() bool) {
	send := sync.OnceFunc(func() { signals <- i.signal })
	if i.when != nil {
		return watchedBuffer{stderr, i.when, send}, func() bool { return true }
	}
	return stderr, time.AfterFunc(i.after, send).Stop
}

// watchedBuffer calls matched each time it has been written to, while all of it matches the pattern.
type watchedBuffer struct {
	text    *bytes.Buffer
	pattern *regexp.Regexp
	matched func()
}

func (b watchedBuffer) Write(p []byte) (int, error) {
	n, err := b.text.Write(p)
	if b.pattern.Match(b.text.Bytes()) {
		b.matched()
	}
	return n, err
}
