// Package build describes this program: its version and those of what is built into it.
package build

import (
	"io"
	goruntime "runtime"
	"runtime/debug"

	"github.com/runonce/runonce/runonce/report"
)

// Versions is the document that version writes.
type Versions struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Version
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Date       string `json:"date"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"` // whose rules are built in
	Containerd string `json:"containerd"` // that is built in

	Daemon  *Program `json:"daemon,omitempty"`  // containerd's, with --address
	Runtime *Program `json:"runtime,omitempty"` // that containers run in
}

// Program is one outside this one.
type Program struct {
	Path    string `json:"path"` // of the program, or of its socket
	Version string `json:"version"`
}

// Table writes one row for each version.
func (v Versions) Table(w io.Writer) error {
	rows := [][]string{
		{"runonce", v.Version},
		{"commit", v.Commit},
		{"date", v.Date},
		{"go", v.Go},
		{"platform", v.Platform},
		{"kubernetes", v.Kubernetes},
		{"containerd", v.Containerd},
	}
	if v.Daemon != nil {
		rows = append(rows, []string{"daemon", v.Daemon.Version + " at " + v.Daemon.Path})
	}
	if v.Runtime != nil {
		rows = append(rows, []string{"runtime", v.Runtime.Version + " at " + v.Runtime.Path})
	}
	return report.Rows(w, nil, rows)
}

// Describe returns the versions of this program and of what is built into it. The
// arguments are what the linker set; what is empty is filled in from what Go knows.
func Describe(version, commit, date string) Versions {
	v := Versions{
		APIVersion: report.APIVersion, Kind: "Version", Version: version, Commit: commit, Date: date,
		Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
		Kubernetes: "unknown", Containerd: "unknown",
	}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value
			case s.Key == "vcs.time" && v.Date == "":
				v.Date = s.Value
			}
		}
		for _, m := range info.Deps {
			switch m.Path {
			case "k8s.io/kubernetes":
				v.Kubernetes = m.Version
			case "github.com/containerd/containerd/v2":
				v.Containerd = m.Version
			}
		}
	}
	for _, s := range []*string{&v.Version, &v.Commit, &v.Date} {
		if *s == "" {
			*s = "unknown"
		}
	}
	return v
}
