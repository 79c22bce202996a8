package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tell answers each connection and each datagram to the addresses with the name of the host and the port.
func tell(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	host, err := os.Hostname()
	if err != nil || len(args) == 0 {
		return errors.Join(err, errors.New("usage: tell ADDRESS [ADDRESS...]"))
	}
	errs := make(chan error, 2*len(args))
	for _, addr := range args {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		var listen net.ListenConfig
		l, err := listen.Listen(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		p, err := listen.ListenPacket(ctx, "udp", addr)
		if err != nil {
			return err
		}
		answer := []byte(host + ":" + port)
		go func() { errs <- tellTCP(l, answer) }()
		go func() { errs <- tellUDP(p, answer) }()
	}
	fmt.Println("telling")
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

func tellTCP(l net.Listener, answer []byte) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = c.Write(answer) // the other side may be gone
		_ = c.Close()
	}
}

func tellUDP(p net.PacketConn, answer []byte) error {
	question := make([]byte, 512)
	for {
		_, from, err := p.ReadFrom(question)
		if err != nil {
			return err
		}
		_, _ = p.WriteTo(answer, from) // likewise
	}
}

// ask connects to addresses of tell and prints for each who has answered.
func ask(args []string) error {
	set := flag.NewFlagSet("ask", flag.ContinueOnError)
	udp := set.Bool("udp", false, "send datagrams")
	times := set.Int("n", 1, "how often each address is asked")
	want := set.String("for", "", "ask again until these answer, sorted and separated by commas, for five minutes; refused and unknown are answers")
	if err := set.Parse(args); err != nil {
		return err
	}
	network := map[bool]string{false: "tcp", true: "udp"}[*udp]
	deadline := time.Now().Add(5 * time.Minute)
	var failed []error
	for _, addr := range set.Args() {
		got := askTimes(network, addr, *times)
		for *want != "" && got != *want && time.Now().Before(deadline) {
			time.Sleep(poll)
			got = askTimes(network, addr, *times)
		}
		fmt.Println(addr, got)
		if *want != "" && got != *want {
			failed = append(failed, fmt.Errorf("%s: %s, not %s", addr, got, *want))
		}
	}
	return errors.Join(failed...)
}

// askTimes asks, at the same time, and returns the answers.
func askTimes(network, addr string, times int) string {
	all := make([]string, times)
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { all[i] = askOnce(network, addr) })
	}
	asked.Wait()
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

func askOnce(network, addr string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // a pod may be starved on a busy machine
	defer cancel()
	answer, err := exchange(ctx, network, addr)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "unknown"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPERM) && network == "udp": // of the machine itself
		return "refused"
	case err != nil:
		return strings.ReplaceAll(err.Error(), ",", ";")
	}
	return answer
}

// exchange sends a question and returns the answer.
func exchange(ctx context.Context, network, addr string) (string, error) {
	var dial net.Dialer
	c, err := dial.DialContext(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if network == "udp" {
		if _, err := c.Write([]byte("who?")); err != nil {
			return "", err
		}
		answer := make([]byte, 512)
		n, err := c.Read(answer)
		return string(answer[:n]), err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}
