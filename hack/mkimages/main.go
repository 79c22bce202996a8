// Command mkimages writes the images of the tests, the demo and the examples into a directory:
//
//	go run ./hack/mkimages DIR [NAME...]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/runonce/runonce/internal/testing/testimages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: mkimages DIR [NAME...]")
		os.Exit(2)
	}
	images, err := testimages.Write(context.Background(), os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkimages: %v\n", err)
		os.Exit(1)
	}
	for _, img := range images {
		fmt.Printf("%-20s %s/%s.tar\n", img.Ref, os.Args[1], img.Name)
	}
}
