package network

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/runonce/runonce/internal/testing/exectest"
)

// flaky adds a plugin after the bridge plugin that runs a script: a shell fragment for each
// CNI command.
func flaky(t *testing.T, m *Manager, script string) (edit func(script string)) {
	t.Helper()
	bin := t.TempDir()
	edit = func(script string) {
		t.Helper()
		text := "#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in\n" + script + "\nesac\n" +
			`[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.126.7.250/24"}]}'; exit 0` + "\n"
		// A running script cannot be written to.
		exectest.Write(t, filepath.Join(bin, "new"), text)
		if err := os.Rename(filepath.Join(bin, "new"), filepath.Join(bin, "flaky")); err != nil {
			t.Fatal(err)
		}
	}
	edit(script)
	m.o.CNIBinDirs = append(m.o.CNIBinDirs, bin)
	writeConf(t, m, "10.conflist", ownBridgeConf(m, `,{"type":"flaky"}`))
	return edit
}

const failing = `echo '{"cniVersion":"1.0.0","code":11,"msg":"come again"}'; exit 1;;`

// wantNothing fails the test when anything of a pod is left, except the bridge.
func wantNothing(t *testing.T, m *Manager) {
	t.Helper()
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
	for _, line := range traces(t, m) {
		if strings.HasPrefix(line, "mount: ") || strings.Contains(line, "veth") || strings.Contains(line, "uid-") {
			t.Errorf("left: %s", line)
		}
	}
}

// A plugin that hangs is killed when the run gives up, and what was done before is undone.
func TestHangingAdd(t *testing.T) {
	m := newManager(t)
	flaky(t, m, "ADD) touch $0.hangs; exec sleep 600;;")
	ctx := untilHanging(t, m)
	if _, err := holding(m).Ensure(ctx, newPod("a")); err == nil || !strings.Contains(err.Error(), `plugin type="flaky" failed (add): context canceled`) {
		t.Errorf("error %v, want that of the context", err)
	}
	wantNothing(t, m)
}

// untilHanging returns a context that ends once a plugin of the test has said that it hangs.
func untilHanging(t *testing.T, m *Manager) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for {
			if hangs, _ := filepath.Glob(filepath.Join(m.o.CNIBinDirs[len(m.o.CNIBinDirs)-1], "*.hangs")); len(hangs) > 0 || t.Context().Err() != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx
}

// A plugin that hangs is killed after the limit, even if the run has no deadline.
func TestHangingPluginLimit(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "ADD) exec sleep 600;;")
	// Long enough for the plugins that do not hang, even on a busy machine.
	m.pluginLimit = 5 * time.Second
	if _, err := holding(m).Ensure(t.Context(), newPod("a")); err == nil || !strings.Contains(err.Error(), `plugin type="flaky" failed (add): it did not finish within 5s`) {
		t.Errorf("Ensure: %v, want the limit", err)
	}
	edit("DEL) exec sleep 600;;")
	ensure(t, m, newPod("a"))
	m.pluginLimit = 100 * time.Millisecond
	if err := holding(m).Remove(t.Context(), newPod("a")); err == nil || !strings.Contains(err.Error(), `plugin type="flaky" failed (delete): it did not finish within 100ms`) {
		t.Errorf("Remove: %v, want the limit", err)
	}
	edit("")
	m.pluginLimit = time.Minute
	if err := holding(m).Remove(t.Context(), newPod("a")); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}

// A plugin that cannot undo its work is called again by the next Ensure or Remove, also in
// another process.
func TestFailingDel(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "")
	pod := newPod("a")
	ensure(t, m, pod)
	edit("DEL) " + failing)
	if err := holding(m).Remove(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "come again") {
		t.Errorf("Remove: %v, want the plugin's words", err)
	}
	if _, err := holding(m).Ensure(t.Context(), pod); err == nil {
		t.Error("Ensure succeeded although what was there before could not be removed")
	}
	edit("")
	if err := holding(New(m.o)).Remove(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}

// Neither ADD nor DEL works: the error has both errors, and the record is kept for later.
func TestFailingAddAndDel(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "ADD|DEL) "+failing)
	pod := newPod("a")
	_, err := holding(m).Ensure(t.Context(), pod)
	if err == nil || strings.Count(err.Error(), "come again") < 2 {
		t.Errorf("error %v, want that of ADD and that of DEL", err)
	}
	edit("")
	if err := holding(New(m.o)).Remove(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}

// A plugin that hangs in DEL is killed when the caller's deadline has passed.
func TestHangingDel(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "")
	pod := newPod("a")
	ensure(t, m, pod)
	edit("DEL) exec sleep 600;;")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := holding(m).Remove(ctx, pod); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("Remove: %v, want the deadline", err)
	}
	edit("")
	if err := holding(m).Remove(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}

// When a start is interrupted, a plugin that hangs in DEL too is named, and called again later.
func TestHangingAddAndDel(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "ADD|DEL) touch $0.hangs; exec sleep 600;;")
	m.pluginLimit = 5 * time.Second // enough for those that do not hang
	_, err := holding(m).Ensure(untilHanging(t, m), newPod("a"))
	const words = `plugin type="flaky" failed (delete): it did not finish within 5s`
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %s", err, words)
	}
	edit("")
	m.pluginLimit = time.Minute
	if err := holding(New(m.o)).Remove(t.Context(), newPod("a")); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}

// A mistake in a network's configuration, which its plugins refuse in DEL, too, keeps no pod: it
// may be corrected, or the network be removed, but not before a pod that is connected.
func TestCorrectedConf(t *testing.T) {
	m := newManager(t)
	pod := newPod("a")
	const wrong = "10.126.7.0/99"
	right := ownBridgeConf(m, "")
	mistake := func() { writeConf(t, m, "10.conflist", strings.Replace(right, "10.126.7.0/24", wrong, 1)) }
	mistake()
	for range 2 {
		if _, err := holding(m).Ensure(t.Context(), pod); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("error %v, want one of %s", err, wrong)
		}
	}
	if err := netlink.LinkDel(bridgeOf(t, m)); err != nil { // the plugin has left it without a hardware address
		t.Fatal(err)
	}
	writeConf(t, m, "10.conflist", right)
	ensure(t, m, pod)
	mistake()
	if err := holding(m).Remove(t.Context(), pod); err != nil {
		t.Errorf("a mistake that came later: %v", err)
	}
	if _, err := holding(m).Ensure(t.Context(), pod); err == nil {
		t.Error("no error with a mistake")
	}
	if err := os.RemoveAll(m.o.CNIConfDir); err != nil {
		t.Fatal(err)
	}
	if err := holding(New(m.o)).Remove(t.Context(), pod); err != nil {
		t.Errorf("without the network: %v", err)
	}
	wantNothing(t, m)
}

// A pod that was connected to a network stays recorded until its plugins have released it.
func TestFailingDelWithoutConf(t *testing.T) {
	m := newManager(t)
	edit := flaky(t, m, "DEL) "+failing)
	pod := newPod("a")
	ensure(t, m, pod)
	if err := os.RemoveAll(m.o.CNIConfDir); err != nil {
		t.Fatal(err)
	}
	if err := holding(m).Remove(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "come again") {
		t.Errorf("error %v, want the plugin's", err)
	}
	edit("")
	if err := holding(m).Remove(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, m)
}
