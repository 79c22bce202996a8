package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The networks that pods join.
const (
	netHost   = "host"
	netBridge = "bridge"
)

// job is what a variant has to start.
type job struct {
	net string
	n   int // pods
}

type options struct {
	sizes   []int // numbers of pods
	large   []int // more of them, for runonce only
	scale   []int // for all commands, one after another, once
	nets    []string
	rounds  int
	only    []string // names of variants, all if empty
	settle  time.Duration
	split   int // number of pods at which CPU time is split by program
	dir     string
	removal time.Duration // limit for the removal of podman's pods
	quick   bool
	calls   bool   // count system calls, if the split is measured
	out     string // file for the record
	render  string // a record to print, instead of measuring
	flags   string // as they were given
	commit  string // what is measured
}

func parseOptions(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := f.String("n", "1,10,30,100", "numbers of pods, comma-separated")
	large := f.String("large", "300", "further numbers of pods, for runonce only")
	scale := f.String("scale", "", "further numbers of pods, with which run, ps, a second run and down are measured once")
	nets := f.String("net", "host,bridge", "networks, comma-separated")
	only := f.String("only", "", "names of the variants to run, comma-separated (default all)")
	f.IntVar(&o.rounds, "rounds", 5, "rounds")
	f.DurationVar(&o.settle, "settle", 0, "--settle of runonce")
	f.IntVar(&o.split, "split", 30, "number of pods at which CPU time is split by program, 0 for never")
	f.StringVar(&o.dir, "dir", "", "directory for all files, instead of file systems of the benchmark's own")
	f.DurationVar(&o.removal, "removal", time.Minute, "limit for the removal of podman's pods")
	f.BoolVar(&o.calls, "calls", true, "count the system calls of one more run with the number of pods of -split, if perf is installed")
	f.StringVar(&o.out, "o", "", "write the figures to this file, too")
	f.StringVar(&o.render, "render", "", "read the figures from this file, and write its tables and plot into the documents beside it")
	f.BoolVar(&o.quick, "quick", false, "measure only the ratios of runonce embedded to the floor, in about a minute")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	f.Visit(func(f *flag.Flag) {
		if f.Name != "rounds" && f.Name != "o" {
			value := f.Value.String()
			if strings.ContainsAny(value, " ") || value == "" {
				value = strconv.Quote(value)
			}
			o.flags = strings.TrimSpace(o.flags + " -" + f.Name + " " + value)
		}
	})
	if o.quick {
		*sizes, *large, *nets, *only, o.rounds, o.split = "1,30", "", netHost, floorName+","+embeddedName, 3, 0
	}
	if o.sizes, err = numbers("n", *sizes); err != nil {
		return o, err
	}
	if o.large, err = numbers("large", *large); err != nil {
		return o, err
	}
	if o.scale, err = numbers("scale", *scale); err != nil {
		return o, err
	}
	o.nets, o.only = list(*nets), list(*only)
	return o, o.check()
}

func (o options) check() error {
	for _, n := range o.nets {
		if n != netHost && n != netBridge {
			return fmt.Errorf("reading -net: there is no network %q, only host and bridge", n)
		}
	}
	for _, name := range o.only {
		if !slices.Contains(variantNames, name) {
			return fmt.Errorf("reading -only: there is no variant %q, only %s", name, strings.Join(variantNames, ", "))
		}
	}
	if len(o.sizes) == 0 || len(o.nets) == 0 || o.rounds < 1 {
		return fmt.Errorf("-n, -net and -rounds must not be empty or 0")
	}
	return nil
}

// has reports whether a variant is to be run.
func (o options) has(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }

// jobs returns all jobs, those of all variants and those of runonce.
func (o options) jobs() []job {
	return product(o.nets, o.counts())
}

// scaleJobs returns those with which all commands are measured.
func (o options) scaleJobs() []job { return product(o.nets, o.scale) }

func product(nets []string, counts []int) []job {
	all := make([]job, 0, len(nets)*len(counts))
	for _, net := range nets {
		for _, n := range counts {
			all = append(all, job{net, n})
		}
	}
	return all
}

// counts returns all numbers of pods in order.
func (o options) counts() []int {
	all := slices.Concat(o.sizes, o.large)
	slices.Sort(all)
	return slices.Compact(all)
}

func list(s string) []string {
	var all []string
	for f := range strings.SplitSeq(s, ",") {
		if f = strings.TrimSpace(f); f != "" {
			all = append(all, f)
		}
	}
	return all
}

func numbers(name, s string) ([]int, error) {
	var all []int
	for _, f := range list(s) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("reading -%s: %q is not a valid number of pods", name, f)
		}
		all = append(all, n)
	}
	return all, nil
}
