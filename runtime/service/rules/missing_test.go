package rules

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/failure"
)

// What only a change of the machine can cure is permanent, and says what that is.
func TestExplain(t *testing.T) {
	t.Parallel()
	some := func() []string { return []string{"nft_masq", "nft_numgen"} }
	for name, tt := range map[string]struct {
		err     syscall.Errno
		missing func() []string
		want    string // empty: not permanent
	}{
		"no netlink":         {syscall.EPROTONOSUPPORT, nil, "the kernel has no nftables"},
		"no subsystem":       {syscall.EINVAL, nil, "load the module nf_tables"},
		"no module":          {syscall.ENOENT, some, "load the modules nft_masq, nft_numgen"},
		"another reason":     {syscall.ENOENT, func() []string { return nil }, ""},
		"no right":           {syscall.EPERM, some, "CAP_NET_ADMIN"},
		"lack of memory":     {syscall.ENOMEM, some, ""},
		"a busy transaction": {syscall.EBUSY, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := explain(fmt.Errorf("changing the table: %w", tt.err), tt.missing)
			if !errors.Is(err, tt.err) {
				t.Errorf("%v hides its cause", err)
			}
			if failure.IsPermanent(err) != (tt.want != "") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, permanent: %t", err, failure.IsPermanent(err))
			}
		})
	}
}

// A kernel that has everything lacks nothing, and is as it was.
func TestMissing(t *testing.T) {
	m := newMachine(t)
	m.in(t, m.host, func() error {
		if got := missing(); len(got) > 0 {
			t.Errorf("missing: %q", got)
		}
		return feature{module: "nft_chain_nat", kind: "nat", hook: features()[0].hook}.try()
	})
	if got := output(t, m.host, "nft", "list", "ruleset"); got != "" {
		t.Errorf("left: %s", got)
	}
	m.in(t, m.host, func() error {
		if err := (feature{module: "nft_none", kind: "none", hook: features()[0].hook}).try(); err == nil {
			t.Error("a kernel has chains of a type that does not exist")
		}
		return nil
	})
}
