// Package e2e tests the built program with real containers: what only shows when processes
// are interrupted, killed, run again or run concurrently.
package e2e
