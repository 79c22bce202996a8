package cmd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/runonce/runonce/runonce/cmd"
)

// forward has a port of a pod or a Service forwarded, and prints what comes from there for several connections at once.
func (s *story) forward(ts *testscript.TestScript, args []string) {
	lines, stdout := io.Pipe()
	signals := make(chan os.Signal, 1)
	all := s.arguments([]string{"port-forward", args[0], "127.0.0.1:0:" + args[1]})
	world := s.world
	var stderr strings.Builder
	world.Environ, world.Signals, world.Stdout, world.Stderr, world.Stdin = func() []string { return s.environ }, signals, stdout, &stderr, strings.NewReader("")
	ended := make(chan int, 1)
	go func() {
		ended <- cmd.Main(s.t.Context(), all, world)
		_ = stdout.Close()
	}()
	line, err := bufio.NewReader(lines).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 5 || strings.Join(fields[:2], " ") != "Forwarding from" {
		ts.Fatalf("printed %q, %v: %s", line, err, &stderr)
	}
	var clients sync.WaitGroup
	answers := make([]string, 5)
	for i := range answers {
		clients.Go(func() { answers[i] = ask(s.t.Context(), fields[2]) })
	}
	clients.Wait()
	signals <- syscall.SIGINT
	if s.code = <-ended; s.code != 128+int(syscall.SIGINT) {
		ts.Fatalf("exit code %d: %s", s.code, &stderr)
	}
	_, err = fmt.Fprintln(ts.Stdout(), strings.Join(answers, "\n"))
	ts.Check(err)
	_, err = io.WriteString(ts.Stderr(), stderr.String())
	ts.Check(err)
}

// ask returns all that comes from an address.
func ask(ctx context.Context, address string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	all, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(all)
}
