package cmd

import (
	"fmt"

	"github.com/runonce/runonce/runonce"
)

// progress tells somebody who looks at a terminal what happens, and the log in any case.
func (p *program) progress(e runonce.Progress) {
	name := e.Pod.Namespace + "/" + e.Pod.Name
	p.log.Info(e.State, "pod", name, "message", e.Message, "done", e.Done, "total", e.Total)
	if !p.io.StderrTerminal || p.json {
		return
	}
	line := fmt.Sprintf("[%d/%d] %s: %s", e.Done, e.Total, name, e.State)
	if e.Message != "" {
		line += ": " + e.Message
	}
	p.tell(line)
}
