package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	// portPrefix begins the names of the chains of ports, affinityPrefix those of the sets of clients.
	portPrefix, affinityPrefix = "port-", "affinity-"
	// unsettled is a chain that is there until the connections of changed UDP ports have been looked at: the next
	// Apply does it for all if a process was killed in between.
	unsettled = "unsettled"
	// affinityClients bounds the memory of a set of clients.
	affinityClients = 65535
	// toMasquerade marks packets from the translation of their destination to that of their source. It is a bit that
	// neither Kubernetes, VPNs nor network plugins are known to use.
	toMasquerade = 1 << 28
)

// plan is what the table of a family consists of. It is pure: commit has the effects.
type plan struct {
	family
	table  *nftables.Table
	sets   []*set
	chains []*chain
	udp    map[string]Port // the UDP ports by the names of their chains
}

// set is a set or map and its elements.
type set struct {
	*nftables.Set
	elements []nftables.SetElement
	keys     map[string]bool
}

// add adds an element, unless the set has the key: the first port wins.
func (s *set) add(e nftables.SetElement) {
	if !s.keys[string(e.Key)] {
		s.keys[string(e.Key)] = true
		s.elements = append(s.elements, e)
	}
}

func (s *set) addKey(key []byte) { s.add(nftables.SetElement{Key: key}) }

func (s *set) addGoto(key []byte, chain string) {
	s.add(nftables.SetElement{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}})
}

// chain is a chain and its rules.
type chain struct {
	*nftables.Chain
	rules []exprs
}

// needs reports whether the table has anything of the family.
func (f family) needs(t Table) bool {
	if slices.ContainsFunc(t.Ranges, func(r netip.Prefix) bool { return f.has(r.Addr()) }) {
		return true
	}
	return slices.ContainsFunc(t.Ports, func(p Port) bool {
		return slices.ContainsFunc(slices.Concat(p.IPs, p.ExternalIPs), f.has)
	})
}

func newPlan(f family, t Table) *plan {
	p := &plan{family: f, table: f.named(t.Name), udp: map[string]Port{}}
	s := p.familySets()
	for _, port := range t.Ports {
		port.Endpoints = slices.DeleteFunc(slices.Clone(port.Endpoints), func(e netip.AddrPort) bool { return !f.has(e.Addr()) })
		p.port(s, port, t.Bridge)
	}
	s.cluster.elements = f.clusterIPs(t)
	p.nat(s, t.Bridge != "")
	p.refuse(s, t.Bridge)
	return p
}

func (f family) named(table string) *nftables.Table {
	return &nftables.Table{Name: table, Family: f.table}
}

// nat adds the chains that translate: just before others, such as those of the bridge and of Docker.
func (p *plan) nat(s sets, bridge bool) {
	nodePort := rule(local(false), p.loopbackDestination(expr.CmpOpNeq), portFrom(firstRegister), vmap(s.nodePorts))
	if bridge && p.inet == unix.AF_INET {
		nodePort = rule(local(false), portFrom(firstRegister), vmap(s.nodePorts))
	}
	p.chain("services", rule(p.destinationPort(), vmap(s.services)), nodePort)
	jump := verdict(expr.VerdictJump, "services")
	p.chain("prerouting", jump).on(nftables.ChainTypeNAT, nftables.ChainHookPrerouting, -110)
	p.chain("output", jump).on(nftables.ChainTypeNAT, nftables.ChainHookOutput, -110)
	p.chain("postrouting",
		rule(unmarked(toMasquerade), verdict(expr.VerdictReturn, "")),
		unmark(toMasquerade),
		rule(link(expr.MetaKeyOIFNAME, "lo"), verdict(expr.VerdictReturn, "")),
		exprs{&expr.Masq{}},
	).on(nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 90)
}

// refuse adds the chains that refuse: just after what is translated got another destination.
func (p *plan) refuse(s sets, bridge string) {
	reject := verdict(expr.VerdictGoto, "reject-all")
	p.chain("reject-all", rejectTCP(), p.rejectAll())
	p.chain("refuse",
		rule(p.destination(), in(s.cluster), reject),
		rule(isNew(), p.destinationPort(), in(s.refused), reject),
		rule(isNew(), local(false), portFrom(firstRegister), in(s.refusedNodePorts), reject))
	jump := verdict(expr.VerdictJump, "refuse")
	early := p.chain("refuse-prerouting")
	if bridge != "" {
		early.rules = append(early.rules,
			rule(link(expr.MetaKeyIIFNAME, bridge), p.loopbackDestination(expr.CmpOpEq), isNew(), verdict(expr.VerdictDrop, "")))
	}
	early.rules = append(early.rules, jump)
	early.on(nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -90)
	p.chain("refuse-output", jump).on(nftables.ChainTypeFilter, nftables.ChainHookOutput, -90)
}

func (p *plan) chain(name string, rules ...exprs) *chain {
	c := &chain{&nftables.Chain{Table: p.table, Name: name}, rules}
	p.chains = append(p.chains, c)
	return c
}

func (c *chain) on(kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) {
	c.Type, c.Hooknum, c.Priority = kind, hook, &priority
}

// sets are the sets and maps that all tables have.
type sets struct {
	services, nodePorts                *set
	cluster, refused, refusedNodePorts *set
}

func (p *plan) familySets() sets {
	port := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	addressPort := nftables.MustConcatSetType(p.address, nftables.TypeInetProto, nftables.TypeInetService)
	verdicts := func(name string, key nftables.SetDatatype) *set {
		return p.set(nftables.Set{Name: name, KeyType: key, Concatenation: true, IsMap: true, DataType: nftables.TypeVerdict})
	}
	return sets{
		services:         verdicts("services", addressPort),
		nodePorts:        verdicts("nodeports", port),
		cluster:          p.set(nftables.Set{Name: "cluster-ips", KeyType: p.address, Interval: true}),
		refused:          p.set(nftables.Set{Name: "refused", KeyType: addressPort, Concatenation: true}),
		refusedNodePorts: p.set(nftables.Set{Name: "refused-nodeports", KeyType: port, Concatenation: true}),
	}
}

func (p *plan) set(s nftables.Set) *set {
	s.Table = p.table
	// Within a batch, sets have numbers.
	s.ID = uint32(len(p.sets) + 1)
	added := &set{Set: &s, keys: map[string]bool{}}
	p.sets = append(p.sets, added)
	return added
}

// port adds what leads to the endpoints of a port, which are of this family only.
func (p *plan) port(s sets, port Port, bridge string) {
	protocol, name := numberOf(port.Protocol), chainName(port)
	translate := p.translate(port)
	p.chain(name, append([]exprs{mark(toMasquerade)}, translate...)...)
	if port.Protocol == v1.ProtocolUDP {
		p.udp[name] = port
	}
	for _, ip := range port.IPs {
		if p.has(ip) {
			s.services.addGoto(addressKey(ip, protocol, port.Port), name)
		}
	}
	if port.KeepSource {
		name = p.keepSource(name, translate, bridge)
	}
	for _, ip := range port.ExternalIPs {
		if p.has(ip) {
			external(s.services, s.refused, addressKey(ip, protocol, port.Port), name, len(translate) > 0)
		}
	}
	if port.NodePort != 0 {
		external(s.nodePorts, s.refusedNodePorts, portKey(protocol, port.NodePort), name, len(translate) > 0)
	}
}

// keepSource adds the chain of a port for clients from outside, and returns its name. Those that are inside, on the
// bridge or this machine, go to its other chain.
func (p *plan) keepSource(name string, translate []exprs, bridge string) string {
	outside := p.chain("outside-"+name, rule(local(true), verdict(expr.VerdictGoto, name)))
	if bridge != "" {
		outside.rules = append(outside.rules, rule(link(expr.MetaKeyIIFNAME, bridge), verdict(expr.VerdictGoto, name)))
	}
	outside.rules = append(outside.rules, translate...)
	return outside.Name
}

// translate returns the rules that lead to one of the endpoints, none if there are none.
func (p *plan) translate(port Port) []exprs {
	var known, chosen []exprs
	for i, e := range port.Endpoints {
		protocol, one, to := l4proto(numberOf(port.Protocol)), oneOf(len(port.Endpoints)-i), p.dnat(e)
		if port.Affinity == 0 {
			chosen = append(chosen, rule(protocol, one, to))
			continue
		}
		clients := p.set(nftables.Set{Name: affinityName(port, e), KeyType: p.address, Dynamic: true, HasTimeout: true, Size: affinityClients})
		stay := update(clients, port.Affinity)
		known = append(known, rule(protocol, p.source(), in(clients), stay, to))
		chosen = append(chosen, rule(protocol, one, p.source(), stay, to))
	}
	return slices.Concat(known, chosen)
}

// external leads what comes from outside to the chain, or refuses it.
func external(served, refused *set, key []byte, chain string, hasEndpoints bool) {
	served.addGoto(key, chain)
	if !hasEndpoints {
		refused.addKey(key)
	}
}

// clusterIPs returns the elements for the ranges, and for the cluster IPs that are in none.
func (f family) clusterIPs(t Table) (elements []nftables.SetElement) {
	all := slices.Clone(t.Ranges)
	for _, port := range t.Ports {
		for _, ip := range port.IPs {
			all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	for i, r := range all {
		all[i] = r.Masked()
	}
	// A prefix comes before what it contains.
	slices.SortFunc(all, netip.Prefix.Compare)
	var last netip.Prefix
	for _, r := range all {
		if !f.has(r.Addr()) || last.IsValid() && last.Overlaps(r) {
			continue
		}
		last = r
		elements = append(elements, nftables.SetElement{Key: r.Addr().AsSlice()}, nftables.SetElement{Key: after(r), IntervalEnd: true})
	}
	return elements
}

// after returns the first address after those of a prefix.
func after(p netip.Prefix) []byte {
	a := p.Addr().AsSlice()
	for i := p.Bits(); i < len(a)*8; i++ {
		a[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(a)
	return last.Next().AsSlice()
}

// chainName is the name of a port's chain, which changes with everything about the port.
func chainName(port Port) string {
	name := strings.ReplaceAll(port.Name, ":", "/") // which nft cannot read in a name
	return portPrefix + name + "/" + strings.ToLower(string(port.Protocol)) + "-" + hash(port)[:8]
}

// affinityName is the name of the set of clients of an endpoint. It stays when the port gets other endpoints.
func affinityName(port Port, e netip.AddrPort) string {
	return affinityPrefix + hash(port.Name, port.Protocol, e)[:16]
}

func hash(all ...any) string {
	sum := sha256.Sum256(fmt.Appendln(nil, all...))
	return hex.EncodeToString(sum[:])
}

// changedUDP returns the UDP ports whose chain the old table has not.
func (p *plan) changedUDP(old listing) []Port {
	var changed []Port
	for name, port := range p.udp {
		if !old.chains[name] || old.chains[unsettled] {
			changed = append(changed, port)
		}
	}
	return changed
}
