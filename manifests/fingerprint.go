package manifests

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Fingerprint returns a text that changes when ReadPaths would read other files, or when one of them
// was written or replaced. It does not read them. URLs and standard input do not count.
func Fingerprint(ctx context.Context, paths []string, o Options) string {
	var b strings.Builder
	for _, p := range paths {
		if p == "-" || isURL(p) || isPipe(p) {
			continue
		}
		inputPath(ctx, p, o, func(f inputFile) {
			if len(f.problems) == 0 || f.problems[0].Severity != SeverityWarning {
				_, _ = fmt.Fprintf(&b, "%q %v %s\n", f.path, f.problems, version(f.path))
			}
		})
	}
	for _, s := range o.Secrets {
		if s.Path != "" {
			_, _ = fmt.Fprintf(&b, "%q %s\n", s.Path, version(s.Path))
		}
	}
	return b.String()
}

// version tells apart what a file was at different times.
func version(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime().String()
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
}
