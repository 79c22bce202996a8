package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func exit(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: exit CODE [TEXT...]")
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 {
		fmt.Println(strings.Join(args[1:], " "))
	}
	return exitCode(code)
}

func crash(args []string) error {
	text := strings.Join(args, " ")
	if text == "" {
		text = "crashed on purpose"
	}
	panic(text)
}

func kill(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: kill SIGNUM")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	// The first process of a PID namespace ignores signals from inside it that have no
	// handler, so a child has to receive the signal.
	if os.Getpid() == 1 {
		return exitCode(128 + n)
	}
	if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	return errors.New("survived")
}

// orphan starts a child and exits without waiting for it: its new parent has to.
func orphan([]string) error {
	return exec.CommandContext(context.Background(), "/proc/self/exe", "exit", "0").Start()
}

// beside starts an applet in a child process and leaves it running.
func beside(args []string) error {
	return exec.CommandContext(context.Background(), "/bin/box", args...).Start()
}

func duration(args []string) (time.Duration, error) {
	if len(args) == 0 {
		return 0, nil
	}
	if n, err := strconv.ParseFloat(args[0], 64); err == nil {
		return time.Duration(n * float64(time.Second)), nil
	}
	return time.ParseDuration(args[0])
}

// wait returns after d (never if d is 0) or when a signal arrives.
func wait(d time.Duration, signals ...os.Signal) {
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	c := make(chan os.Signal, 1)
	if len(signals) > 0 {
		signal.Notify(c, signals...)
	}
	select {
	case <-after:
	case s := <-c:
		fmt.Println("got", s)
	}
}

func sleep(args []string) error {
	d, err := duration(args)
	if err != nil {
		return err
	}
	wait(d, syscall.SIGTERM, syscall.SIGINT)
	return nil
}

func stay(args []string) error {
	d, err := duration(args)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("deaf from now on")
	if d == 0 {
		d = 24 * time.Hour
	}
	wait(d)
	return nil
}

// trap exits at the first signal, except those that Go itself uses and those of children and
// terminals, or after the duration.
func trap(args []string) error {
	d, err := duration(args)
	if err != nil {
		return err
	}
	if d == 0 {
		d = 24 * time.Hour
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c)
	fmt.Println("ready")
	for end := time.After(d); ; {
		select {
		case s := <-c:
			n, ok := s.(syscall.Signal)
			if ok && n != syscall.SIGURG && n != syscall.SIGCHLD && n != syscall.SIGWINCH {
				fmt.Println("got signal", int(n))
				return nil
			}
		case <-end:
			return nil
		}
	}
}

// huge is killed by SIGBUS when the kernel has no more pages.
func huge(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: huge FILE MIB")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(args[0]) }()
	size := n << 20
	pages, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	for i := 0; i < size; i += 4096 {
		pages[i] = 1
	}
	fmt.Println("holding", n, "MiB")
	return syscall.Munmap(pages)
}

func listen([]string) error {
	fmt.Println("listening")
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	fmt.Printf("%send\n", text)
	return nil
}

func alloc(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: alloc MIB")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	const mib = 1 << 20
	held := make([][]byte, 0, n)
	for range n {
		block := make([]byte, mib)
		for i := 0; i < mib; i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	fmt.Println("holding", len(held), "MiB")
	wait(0, syscall.SIGTERM, syscall.SIGINT)
	_ = held[len(held)-1][0]
	return nil
}

// oom needs a limit on the memory.
func oom(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: oom CODE")
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if exec.CommandContext(context.Background(), "/proc/self/exe", "alloc", "1024").Run() == nil {
		return errors.New("the child was not killed")
	}
	return exitCode(code)
}

func burn(args []string) error {
	d, err := duration(args)
	if err != nil {
		return err
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	start := time.Now()
	for d == 0 || time.Since(start) < d {
		select {
		case <-c:
			return nil
		default:
		}
	}
	return nil
}

func do(args []string) error {
	all := applets()
	for _, line := range args {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if code := run(all, words[0], words[1:]); code != 0 {
			return exitCode(code)
		}
	}
	return nil
}
