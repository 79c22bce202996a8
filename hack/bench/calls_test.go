package main

import (
	"strings"
	"testing"
)

func TestReadCalls(t *testing.T) {
	t.Parallel()
	// A process counts under its last name, and a name can have blanks.
	const recorded = `
            perf    10/10                    sched:sched_process_exec: filename=/usr/bin/crun pid=10 old_pid=10
            crun    10/10               syscalls:sys_enter_openat: dfd: 0xffffff9c, filename: 0x7fb40e22, flags: 0x00080000
            crun    10/10               sched:sched_process_fork: comm=crun pid=10 child_comm=crun child_pid=11
            crun    11/11               syscalls:sys_enter_move_mount: from_dfd: 0x00000003
            crun    11/11               syscalls:sys_enter_newfstatat: dfd: 0x00000003
           pause    11/11               sched:sched_process_exec: filename=/pause pid=11 old_pid=11
   runc:[2:INIT]    12/13               exceptions:page_fault_user: address=0x7fb40e216b70 ip=0x7fb40e216b70 error_code=0x14
    runonce-shim    14/15               syscalls:sys_exit_write: 0x800
    runonce-shim    14/14               syscalls:sys_exit_write: 0xfffffffffffffff5
      some thing    16/16               syscalls:sys_enter_openat: dfd: 0xffffff9c
`
	all, err := readCalls(strings.NewReader(recorded), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		part, names string
		want        float64
	}{
		{partRuntime, "openat", 0.5},
		{partRuntime, countTasks, 0.5},
		{partRuntime, countPrograms, 0.5},
		{partContainer, "fstatat move_mount", 1},
		{partContainer, countPrograms, 0.5},
		{partContainer, countFaults, 0.5},
		{partShim, countWritten, 1},
	} {
		if got := all[c.part].sum(c.names); got != c.want {
			t.Errorf("%s, %s: %v, want %v", c.part, c.names, got, c.want)
		}
	}
	if got := all[partContainer].system(); got != 1 {
		t.Errorf("%v system calls, want 1", got)
	}
	if len(all) != 3 {
		t.Errorf("parts %v", all)
	}
}

// The same record always gives the same table, although fractions add up to other sums in other orders.
func TestSystemCallsInOneOrder(t *testing.T) {
	t.Parallel()
	c := calls{}
	for i, name := range strings.Fields("a b c d e f g h i j k l") {
		c[name] = 1 / float64(3+i)
	}
	want := c.system()
	for range 100 {
		if got := c.system(); got != want {
			t.Fatalf("%v, and then %v", want, got)
		}
	}
}
