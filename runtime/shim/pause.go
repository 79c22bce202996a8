package shim

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// pause is the first process of a shared PID namespace: it waits for SIGINT or SIGTERM and
// reaps orphaned processes. Its exit code is 0, as that of Kubernetes' pause.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
		}
	}
}
