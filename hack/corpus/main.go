// Command corpus reads manifests from outside the repository and prints the verdict on each.
// If a directory has a cases.tsv, it has one directory per case, and each case must get the
// verdict in that table. For any other directory, corpus prints totals.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runonce/runonce/manifests"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: corpus DIR...")
		os.Exit(2)
	}
	failed := false
	for _, dir := range os.Args[1:] {
		check := totals
		if _, err := os.Stat(filepath.Join(dir, "cases.tsv")); err == nil {
			check = cases
		}
		if err := check(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, "corpus:", err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// cases compares the verdict on each case with the expected one: accept, reject, warn (a
// warning or a rejection) or survive (any).
func cases(ctx context.Context, dir string) error {
	f, err := os.Open(filepath.Join(dir, "cases.tsv"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	total, wrong := 0, 0
	for s := bufio.NewScanner(f); s.Scan(); {
		cols := strings.Split(s.Text(), "\t")
		if len(cols) < 2 || cols[0] == "case" {
			continue
		}
		total++
		set, err := manifests.ReadPaths(ctx, []string{filepath.Join(dir, cols[0])}, manifests.Options{NodeName: "localhost"})
		got := verdict(set, err)
		ok := got == cols[1] || cols[1] == "survive" || (cols[1] == "warn" && got == "reject")
		if !ok {
			wrong++
		}
		fmt.Printf("%-4t %-24s want %-8s got %s\n", ok, cols[0], cols[1], got)
		show(set, err)
	}
	if wrong > 0 {
		return fmt.Errorf("%s: %d of %d verdicts are wrong", dir, wrong, total)
	}
	return nil
}

func verdict(set *manifests.Set, err error) string {
	switch {
	case err != nil:
		return "reject"
	case len(set.Warnings) > 0:
		return "warn"
	}
	return "accept"
}

func show(set *manifests.Set, err error) {
	if err != nil {
		fmt.Println("     " + strings.ReplaceAll(err.Error(), "\n", "\n     "))
	}
	for _, w := range set.Warnings {
		fmt.Println("     warning: " + w.String())
	}
}

// totals reads every file below dir separately and counts the verdicts.
func totals(ctx context.Context, dir string) error {
	counts, reasons := map[string]int{}, map[string]int{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		set, err := manifests.ReadPaths(ctx, []string{path}, manifests.Options{NodeName: "localhost"})
		got := verdict(set, err)
		counts[got]++
		for _, i := range set.Invalid {
			for _, f := range i.Problems {
				reasons[reason(f)]++
			}
		}
		fmt.Printf("%-7s %s\n", got, path)
		show(set, err)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading %q: %w", dir, err)
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%6d %s\n", counts[k], k)
	}
	keys := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return reasons[b] - reasons[a] })
	for _, k := range keys {
		fmt.Printf("%6d %s\n", reasons[k], k)
	}
	return nil
}

// reason is a problem without the parts that differ from file to file.
func reason(f manifests.Diagnostic) string {
	var field strings.Builder
	depth := 0
	for _, c := range f.Field {
		switch {
		case c == '[':
			depth++
			field.WriteString("[]")
		case c == ']':
			depth--
		case depth == 0:
			field.WriteRune(c)
		}
	}
	message, _, _ := strings.Cut(f.Message, ":")
	return field.String() + ": " + message
}
