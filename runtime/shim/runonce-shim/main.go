// Runonce-shim is the slim second program of runonce; see package shim.
package main

import "github.com/runonce/runonce/runtime/shim"

func main() { shim.Main() }
