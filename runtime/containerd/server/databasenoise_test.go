//go:build !race

package server

// The race detector also checks pointers, and an invalid one in a damaged database then ends the process.

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
)

// TestCheckDatabasesNoise: bytes at random places may go unnoticed, but cause no panic.
func TestCheckDatabasesNoise(t *testing.T) {
	t.Parallel()
	good, random := database(t), rand.New(rand.NewPCG(7, 9))
	for i := range 3000 {
		root := filepath.Join(t.TempDir(), strconv.Itoa(i))
		text := bytes.Clone(good)
		for range 1 + random.IntN(40) {
			text[random.IntN(len(text))] = byte(random.Uint32())
		}
		writeDatabase(t, root, text)
		_ = checkDatabases(root)
	}
}
