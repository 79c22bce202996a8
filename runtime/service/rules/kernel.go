package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
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
	present  bool
	chains   map[string]bool
	affinity []string // the sets of clients
}

func list(c *nftables.Conn, t *nftables.Table) (listing, error) {
	l := listing{chains: map[string]bool{}}
	chains, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return l, explain(fmt.Errorf("listing the chains of nftables: %w", err), nil)
	}
	for _, ch := range chains {
		if ch.Table.Name == t.Name {
			l.chains[ch.Name] = true
		}
	}
	// A table without chains is not one that we have made.
	if l.present = len(l.chains) > 0; !l.present {
		return l, nil
	}
	sets, err := c.GetSets(t)
	if err != nil {
		return l, fmt.Errorf("listing the sets of the table %s: %w", t.Name, err)
	}
	for _, s := range sets {
		if strings.HasPrefix(s.Name, affinityPrefix) {
			l.affinity = append(l.affinity, s.Name)
		}
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
			ch.chain(unsettled)
		}
		all = append(all, ch)
	}
	return all, nil
}

// commit makes the tables what the plans say, in one transaction. If that is impossible because of what the tables
// were, as after another version of this program, it makes them anew, and the clients' affinity is lost.
func commit(c *nftables.Conn, changes []change) error {
	err := send(c, changes)
	if err != nil {
		for i, ch := range changes {
			changes[i].old = listing{}
			if ch.old.present {
				c.AddTable(ch.table)
				c.DelTable(ch.table)
			}
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
		if len(ch.chains) == 0 {
			if ch.old.present {
				c.DelTable(ch.table)
			}
			continue
		}
		if err := ch.replace(c); err != nil {
			return err
		}
		if err := ch.fill(c); err != nil {
			return err
		}
	}
	return c.Flush()
}

// replace empties the table, and deletes what is in the plan no more.
func (ch change) replace(c *nftables.Conn) error {
	c.AddTable(ch.table)
	kept := map[string]bool{}
	for _, s := range ch.sets {
		kept[s.Name] = true
		if err := c.AddSet(s.Set, nil); err != nil {
			return err
		}
	}
	// First all that may lead to another chain or set, then those.
	c.FlushTable(ch.table)
	for _, s := range ch.sets {
		if !s.HasTimeout {
			c.FlushSet(s.Set)
		}
	}
	for _, n := range ch.chains {
		kept[n.Name] = true
	}
	for name := range ch.old.chains {
		if !kept[name] {
			c.DelChain(&nftables.Chain{Table: ch.table, Name: name})
		}
	}
	for _, name := range ch.old.affinity {
		if !kept[name] {
			c.DelSet(&nftables.Set{Table: ch.table, Name: name})
		}
	}
	return nil
}

// fill adds the chains, and then what leads to them.
func (p *plan) fill(c *nftables.Conn) error {
	for _, ch := range p.chains {
		c.AddChain(ch.Chain)
	}
	for _, s := range p.sets {
		for elements := range slices.Chunk(s.elements, elementsAtOnce) {
			if err := c.SetAddElements(s.Set, elements); err != nil {
				return err
			}
		}
	}
	for _, ch := range p.chains {
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: p.table, Chain: ch.Chain, Exprs: r})
		}
	}
	return nil
}
