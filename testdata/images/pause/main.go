// Command pause does nothing until it gets SIGTERM or SIGINT, then exits with 0. It is the
// whole of the smallest test image.
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
