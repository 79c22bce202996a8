package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
)

// explain makes an error of the kernel permanent that only a change of the machine can cure. missing tells what the
// kernel lacks; it is nil if the kernel has not been asked for anything in particular.
func explain(err error, missing func() []string) error {
	lacks := errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
	switch {
	case errors.Is(err, unix.EPERM):
		return failure.Permanentf("Services need the right to change the machine's network: run as root (CAP_NET_ADMIN): %w", err)
	case !lacks:
		return err
	case missing == nil:
		return failure.Permanentf("the kernel has no nftables, which Services need: load the module nf_tables, or install the package with the kernel's modules: %w", err)
	}
	if parts := missing(); len(parts) > 0 {
		return failure.Permanentf("the kernel lacks parts of nftables that Services need: load the modules %s, or install the package with the kernel's modules: %w",
			strings.Join(parts, ", "), err)
	}
	return err
}

// feature is a part of nftables, with a rule that needs it.
type feature struct {
	module string
	kind   nftables.ChainType
	hook   *nftables.ChainHook
	rule   exprs
}

func features() []feature {
	pre, post := nftables.ChainHookPrerouting, nftables.ChainHookPostrouting
	return []feature{
		{"nft_chain_nat", nftables.ChainTypeNAT, pre, nil},
		{"nft_ct", nftables.ChainTypeFilter, pre, isNew()},
		{"nft_fib_ipv4", nftables.ChainTypeFilter, pre, local(false)},
		{"nft_numgen", nftables.ChainTypeFilter, pre, oneOf(2)},
		{"nft_nat", nftables.ChainTypeNAT, pre, ipv4.dnat(netip.AddrPortFrom(netip.IPv4Unspecified(), 1))},
		{"nft_masq", nftables.ChainTypeNAT, post, exprs{&expr.Masq{}}},
		{"nft_reject_ipv4 (that of Linux 5.10 or later)", nftables.ChainTypeFilter, pre, ipv4.rejectAll()},
	}
}

// missing tries each feature, and returns the modules of those that the kernel lacks. Nothing is changed: the table
// is deleted in the transaction that makes it.
func missing() []string {
	var modules []string
	for _, f := range features() {
		if err := f.try(); err != nil {
			modules = append(modules, f.module)
		}
	}
	return modules
}

func (f feature) try() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Name: "runonce-probe", Family: nftables.TableFamilyIPv4})
	ch := c.AddChain(&nftables.Chain{Table: t, Name: "probe", Type: f.kind, Hooknum: f.hook, Priority: nftables.ChainPriorityFilter})
	if f.rule != nil {
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: f.rule})
	}
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("trying %s: %w", f.module, err)
	}
	return nil
}
