package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// bufferSize bounds what the kernel and this process have to tell each other about one transaction, in bytes.
	// Nothing is allocated ahead.
	bufferSize = 64 << 20
	// elementsAtOnce keeps a message below the 64 KiB that an attribute can have.
	elementsAtOnce = 128
)

// dial opens a connection to the kernel.
func dial() (*nftables.Conn, error) {
	large := func(c *netlink.Conn) error {
		if err := c.SetWriteBuffer(bufferSize); err != nil {
			return err
		}
		return c.SetReadBuffer(bufferSize)
	}
	c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(large))
	if err != nil {
		return nil, explain(fmt.Errorf("connecting to nftables: %w", err), nil)
	}
	return c, nil
}

// listing is what the kernel has of a table.
type listing struct {
	present bool
	damaged bool // it has lost its rules
	chains  map[string]bool
	sets    map[string]bool
}

func list(c *nftables.Conn, t *nftables.Table) (listing, error) {
	l := listing{chains: map[string]bool{}, sets: map[string]bool{}}
	chains, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return l, explain(fmt.Errorf("listing the chains of nftables: %w", err), nil)
	}
	services := ""
	for _, ch := range chains {
		if ch.Table.Name == t.Name {
			l.chains[ch.Name] = true
			if strings.HasPrefix(ch.Name, servicesChain) {
				services = ch.Name
			}
		}
	}
	// A table without chains is not one that we have made.
	if l.present = len(l.chains) > 0; !l.present {
		return l, nil
	}
	rules, err := c.GetRules(t, &nftables.Chain{Name: services})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return l, fmt.Errorf("listing the rules of the table %s: %w", t.Name, err)
	}
	l.damaged = len(rules) == 0
	sets, err := c.GetSets(t)
	if err != nil {
		return l, fmt.Errorf("listing the sets of the table %s: %w", t.Name, err)
	}
	for _, s := range sets {
		l.sets[s.Name] = true
	}
	return l, nil
}

// change is what becomes of the table of a family, from what it was.
type change struct {
	*plan
	old     listing
	changed []Port // the UDP ports whose connections may lead elsewhere
}

func newChanges(c *nftables.Conn, t Table) ([]change, error) {
	var all []change
	for _, f := range []family{ipv4, ipv6} {
		old, err := list(c, f.named(t.Name))
		if err != nil {
			return nil, err
		}
		ch := change{plan: &plan{family: f, table: f.named(t.Name)}, old: old}
		if f.needs(t) {
			ch.plan = newPlan(f, t)
		}
		if ch.changed = ch.changedUDP(old); len(ch.changed) > 0 {
			ch.chains = append(ch.chains, &chain{Chain: &nftables.Chain{Table: ch.table, Name: unsettled}})
		}
		all = append(all, ch)
	}
	return all, nil
}

// commit makes the tables what the plans say, in one transaction. If that is impossible because of what the tables
// were, as after another version of this program, it makes new ones, and the clients' affinity is lost.
func commit(c *nftables.Conn, changes []change) error {
	err := send(c, changes)
	if err != nil {
		for i := range changes {
			changes[i].old.damaged = changes[i].old.present
		}
		err = send(c, changes)
	}
	if err != nil {
		return explain(fmt.Errorf("changing the table %s: %w", changes[0].table.Name, err), missing)
	}
	return nil
}

func send(c *nftables.Conn, changes []change) error {
	for _, ch := range changes {
		empty := len(ch.chains) == 0
		if ch.old.damaged || empty && ch.old.present {
			c.AddTable(ch.table) // which may be gone by now
			c.DelTable(ch.table)
			ch.old = listing{}
		}
		if empty {
			continue
		}
		if err := ch.replace(c); err != nil {
			return err
		}
	}
	return c.Flush()
}

// replace adds what the kernel has not, and deletes what is in the plan no more: first what leads to chains and sets,
// and then those.
func (ch change) replace(c *nftables.Conn) error {
	c.AddTable(ch.table)
	kept := map[string]bool{}
	for _, s := range ch.sets {
		kept[s.Name] = true
		switch {
		case !ch.old.sets[s.Name]:
			if err := c.AddSet(s.Set, nil); err != nil {
				return err
			}
		case !s.HasTimeout:
			c.FlushSet(s.Set)
		}
	}
	for _, n := range ch.chains {
		kept[n.Name] = true
	}
	ch.flushChains(c, kept)
	for name := range ch.old.sets {
		if !kept[name] {
			c.DelSet(&nftables.Set{Table: ch.table, Name: name})
		}
	}
	return ch.fill(c)
}

// flushChains deletes the chains that are not to be kept. They may lead to each other.
func (ch change) flushChains(c *nftables.Conn, kept map[string]bool) {
	var gone []*nftables.Chain
	for name := range ch.old.chains {
		if !kept[name] {
			gone = append(gone, &nftables.Chain{Table: ch.table, Name: name})
		}
	}
	for _, g := range gone {
		c.FlushChain(g)
	}
	for _, g := range gone {
		c.DelChain(g)
	}
}

// fill adds the chains, and then what leads to them.
func (ch change) fill(c *nftables.Conn) error {
	for _, n := range ch.chains {
		if !ch.old.chains[n.Name] {
			c.AddChain(n.Chain)
		}
	}
	for _, s := range ch.sets {
		for elements := range slices.Chunk(s.elements, elementsAtOnce) {
			if err := c.SetAddElements(s.Set, elements); err != nil {
				return err
			}
		}
	}
	for _, n := range ch.chains {
		if ch.old.chains[n.Name] {
			continue
		}
		for _, r := range n.rules {
			c.AddRule(&nftables.Rule{Table: ch.table, Chain: n.Chain, Exprs: r})
		}
	}
	return nil
}
