package runtime

import (
	"os"
	"strings"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/logs"
)

// What of a log stands in for a termination message (pkg/kubelet/container).
const (
	fallbackLines = 80
	fallbackBytes = 2048
)

// maxTerminationMessage bounds a termination message, in bytes (pkg/kubelet/container).
const maxTerminationMessage = 4096

// readTerminationLog returns the message that the container left, "" when it left none.
func readTerminationLog(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	offset := max(0, info.Size()-maxTerminationMessage)
	buf := make([]byte, info.Size()-offset)
	n, err := f.ReadAt(buf, offset)
	if err != nil && n < len(buf) {
		return ""
	}
	return string(buf)
}

// terminationMessage is what the container left at its terminationMessagePath or, by its
// policy, the end of its log when it failed without a word.
func (p *Pods) terminationMessage(pod *v1.Pod, def *v1.Container, c engine.Container) string {
	message := readTerminationLog(p.terminationLog(pod, def.Name, c.Attempt))
	if message != "" || c.Exit.ExitCode == 0 || def.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError {
		return message
	}
	text, err := logs.TailText(c.LogPath, fallbackLines, fallbackBytes)
	if err != nil {
		// The message is a courtesy; the log itself is reported where it is missed.
		return ""
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// maxMessages bounds the termination messages of a pod together, in bytes
// (MaxPodTerminationMessageLogLength of pkg/kubelet/container).
const maxMessages = 12 << 10

// shorten gives each container of the pod its share of what messages may take
// (normalizeStatus of pkg/kubelet/status).
func shorten(groups ...[]v1.ContainerStatus) {
	n := 0
	for _, g := range groups {
		n += len(g)
	}
	for _, g := range groups {
		for i := range g {
			for _, t := range []*v1.ContainerStateTerminated{g[i].State.Terminated, g[i].LastTerminationState.Terminated} {
				if most := maxMessages / n; t != nil && len(t.Message) > most {
					t.Message = strings.ToValidUTF8(t.Message[:most], "")
				}
			}
		}
	}
}
