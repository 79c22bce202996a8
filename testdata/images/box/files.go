package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const poll = 20 * time.Millisecond

func echo(args []string) error {
	_, err := fmt.Println(strings.Join(args, " "))
	return err
}

func stderr(args []string) error {
	_, err := fmt.Fprintln(os.Stderr, strings.Join(args, " "))
	return err
}

func cat(args []string) error {
	for _, name := range args {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func write(args []string) error {
	if len(args) < 1 {
		return errors.New("usage: write FILE [TEXT]")
	}
	if err := os.MkdirAll(filepath.Dir(args[0]), 0o755); err != nil {
		return err
	}
	return os.WriteFile(args[0], []byte(strings.Join(args[1:], " ")+"\n"), 0o644)
}

func appendTo(args []string) error {
	if len(args) < 1 {
		return errors.New("usage: append FILE [TEXT]")
	}
	f, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, strings.Join(args[1:], " ")); err != nil {
		return err
	}
	return f.Close()
}

func render(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: render FROM TO")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[1], []byte(os.ExpandEnv(string(b))), 0o644); err != nil {
		return err
	}
	fmt.Println("rendered", args[1])
	return nil
}

func await(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: await FILE")
	}
	for {
		if _, err := os.Stat(args[0]); err == nil {
			return nil
		}
		time.Sleep(poll)
	}
}

func gone(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: gone FILE")
	}
	if _, err := os.Stat(args[0]); err == nil {
		return fmt.Errorf("%s exists", args[0])
	}
	return nil
}

func flaky(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: flaky FILE N")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	old, err := os.ReadFile(args[0])
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	calls := strings.Count(string(old), "\n") + 1
	if err := appendTo([]string{args[0], "call", strconv.Itoa(calls)}); err != nil {
		return err
	}
	if calls < n {
		return fmt.Errorf("call %d of %d fails", calls, n)
	}
	fmt.Printf("call %d succeeds\n", calls)
	return nil
}

func flood(args []string) error {
	set := flag.NewFlagSet("flood", flag.ContinueOnError)
	n := set.Int("n", 1000, "lines")
	size := set.Int("size", 80, "bytes in a line, without the newline")
	toStderr := set.Bool("stderr", false, "print to stderr")
	if err := set.Parse(args); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	if *toStderr {
		out = bufio.NewWriter(os.Stderr)
	}
	for i := range *n {
		line := fmt.Sprintf("line %08d ", i)
		if len(line) < *size {
			line += strings.Repeat("x", *size-len(line))
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// ended is closed when SIGTERM or SIGINT comes.
func ended() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

func produce(args []string) error {
	set := flag.NewFlagSet("produce", flag.ContinueOnError)
	every := set.Duration("every", time.Second, "interval")
	n := set.Int("n", 0, "stop after this many lines; 0 for never")
	if err := set.Parse(args); err != nil {
		return err
	}
	end := ended()
	for i := 1; *n == 0 || i <= *n; i++ {
		if err := appendTo([]string{set.Arg(0), "item", strconv.Itoa(i)}); err != nil {
			return err
		}
		fmt.Println("wrote item", i)
		select {
		case <-end:
			return nil
		case <-time.After(*every):
		}
	}
	return nil
}

func consume(args []string) error {
	set := flag.NewFlagSet("consume", flag.ContinueOnError)
	n := set.Int("n", 0, "stop after this many lines; 0 for never")
	if err := set.Parse(args); err != nil {
		return err
	}
	end := ended()
	if err := await([]string{set.Arg(0)}); err != nil {
		return err
	}
	f, err := os.Open(set.Arg(0))
	if err != nil {
		return err
	}
	r := bufio.NewReader(f)
	for got := 0; *n == 0 || got < *n; {
		line, err := r.ReadString('\n')
		switch {
		case err == nil:
			got++
			fmt.Print("read ", line)
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		select {
		case <-end:
			return nil
		case <-time.After(poll):
		}
	}
	return f.Close()
}

func remove(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: remove FILE")
	}
	return os.Remove(args[0])
}
