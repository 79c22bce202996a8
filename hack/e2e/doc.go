// Package e2e tests the program as it is built, on real containers: what only shows when
// processes are interrupted, killed, run again or run beside each other.
package e2e
