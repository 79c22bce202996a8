// Command pause waits for SIGTERM or SIGINT and exits with 0. It is the only content of the
// smallest test image.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}
