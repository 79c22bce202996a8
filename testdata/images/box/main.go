// Command box is the program of the test images: one static binary with several applets. The
// applet is the name that the program is called by or, if that is not an applet, its first
// argument.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// exitCode is an error that sets the exit code and prints nothing.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

type applet struct {
	usage string
	run   func(args []string) error
}

func applets() map[string]applet {
	return map[string]applet{
		"web":     {"[-addr :8080] [-dir /www] [-ready FILE] [-delay D] [-tls]  serve DIR, /healthz, /livez and /readyz over HTTP or HTTPS", web},
		"get":     {"[-timeout 5s] [-again] [-status 200] URL  print the response to an HTTP GET", get},
		"probed":  {"[-lives FILE] [-delay D]  serve everything that probes and hooks can use", probed},
		"tcp":     {"ADDRESS  connect to an address and print it", tcp},
		"tell":    {"ADDRESS...  answer connections and datagrams to each ADDRESS with the host name and the port", tell},
		"ask":     {"[-udp] [-n 1] [-for ANSWERS] ADDRESS...  print who answers at each ADDRESS, which a tell serves", ask},
		"exit":    {"CODE [TEXT...]  print TEXT and exit with CODE", exit},
		"crash":   {"[TEXT...]  panic with a stack trace", crash},
		"kill":    {"SIGNUM  send itself a signal", kill},
		"orphan":  {"leave a child behind that exits at once", orphan},
		"beside":  {"APPLET ARGS...  start an applet in a child process and leave it running", beside},
		"sleep":   {"[DURATION]  sleep, forever without DURATION; exit with 0 on SIGTERM", sleep},
		"stay":    {"[DURATION]  sleep and ignore SIGTERM", stay},
		"trap":    {"[DURATION]  print \"ready\", then print the first signal and exit, without one after DURATION", trap},
		"diary":   {"FILE [DURATION]  log the start, SIGTERM and, DURATION later, the end, with the time since boot in ns", diary},
		"ledger":  {"FILE CODE [DURATION]  log the start and, after DURATION or SIGTERM, the end, with the time since boot in ns, and exit with CODE", ledger},
		"huge":    {"FILE MIB  map FILE, in a hugetlbfs, and write to it", huge},
		"listen":  {"  print standard input, and \"end\" at its end", listen},
		"echo":    {"TEXT...  print TEXT", echo},
		"error":   {"TEXT...  print TEXT to stderr", stderr},
		"cat":     {"FILE...  print files", cat},
		"write":   {"FILE TEXT...  write TEXT into FILE, creating its directory", write},
		"append":  {"FILE TEXT...  append TEXT to FILE", appendTo},
		"render":  {"FROM TO  copy a file and replace $NAME by environment variables", render},
		"remove":  {"FILE  remove FILE", remove},
		"await":   {"FILE  wait until FILE exists", await},
		"gone":    {"FILE  fail if FILE exists", gone},
		"produce": {"[-every 1s] [-n 0] FILE  append numbered lines to FILE", produce},
		"consume": {"[-n 0] FILE  print lines as they are appended to FILE", consume},
		"flaky":   {"FILE N  fail until called N times, counting in FILE", flaky},
		"flood":   {"[-n 1000] [-size 80] [-stderr]  print many lines", flood},
		"alloc":   {"MIB  allocate memory, then sleep", alloc},
		"oom":     {"CODE  be OOM-killed in a child process, and exit with CODE", oom},
		"burn":    {"[DURATION]  keep one core busy", burn},
		"facts":   {"[-out FILE] [-stat PATHS] [-sysctl NAMES] [-hold]  print what the container sees, as JSON", facts},
		"mount":   {"DIR  mount a tmpfs on DIR", mountAt},
		"swap":    {"PATH TARGET  replace PATH by a directory and by a link to TARGET in turns, until SIGTERM", swap},
		"link":    {"PATH TARGET  replace PATH by a link to TARGET", link},
		"fill":    {"FILE MIB  write MIB mebibytes to FILE", fill},
		"do":      {"\"APPLET ARGS\"...  run applets one after the other", do},
	}
}

func main() {
	args := os.Args
	all := applets()
	name := filepath.Base(args[0])
	if _, ok := all[name]; !ok {
		args = args[1:]
		if len(args) == 0 {
			usage(all)
			os.Exit(2)
		}
		name = args[0]
	}
	os.Exit(run(all, name, args[1:]))
}

func run(all map[string]applet, name string, args []string) int {
	a, ok := all[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "box: unknown applet %q\n", name)
		return 2
	}
	err := a.run(args)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

func usage(all map[string]applet) {
	for name, a := range all {
		fmt.Fprintf(os.Stderr, "box %s %s\n", name, a.usage)
	}
}
