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
	// affinityPrefix begins the names of the sets of clients, servicesChain that of a chain which always has rules.
	affinityPrefix, servicesChain = "affinity-", "services"
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
		if !slices.ContainsFunc(slices.Concat(port.IPs, port.ExternalIPs), f.has) {
			continue
		}
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
	jump := verdict(expr.VerdictJump, p.chain(servicesChain, "", rule(p.destinationPort(), vmap(s.services)), nodePort))
	p.hook(hook{nftables.ChainTypeNAT, nftables.ChainHookPrerouting, -110}, "prerouting", "", jump)
	p.hook(hook{nftables.ChainTypeNAT, nftables.ChainHookOutput, -110}, "output", "", jump)
	p.hook(hook{nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 90}, "postrouting", "",
		rule(unmarked(toMasquerade), verdict(expr.VerdictReturn, "")),
		unmark(toMasquerade),
		rule(link(expr.MetaKeyOIFNAME, "lo"), verdict(expr.VerdictReturn, "")),
		exprs{&expr.Masq{}})
}

// refuse adds the chains that refuse: just after what is translated got another destination.
func (p *plan) refuse(s sets, bridge string) {
	reject := verdict(expr.VerdictGoto, p.chain("reject-all", "", rejectTCP(), p.rejectAll()))
	jump := verdict(expr.VerdictJump, p.chain("refuse", "",
		rule(p.destination(), in(s.cluster), reject),
		rule(isNew(), p.destinationPort(), in(s.refused), reject),
		rule(isNew(), local(false), portFrom(firstRegister), in(s.refusedNodePorts), reject)))
	early := []exprs{jump}
	if bridge != "" {
		closed := rule(link(expr.MetaKeyIIFNAME, bridge), p.loopbackDestination(expr.CmpOpEq), isNew(), verdict(expr.VerdictDrop, ""))
		early = []exprs{closed, jump}
	}
	p.hook(hook{nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -90}, "refuse-prerouting", "", early...)
	p.hook(hook{nftables.ChainTypeFilter, nftables.ChainHookOutput, -90}, "refuse-output", "", jump)
}

// chain adds a chain and returns its name, which ends in a hash of its rules and of what else tells it from others:
// a chain of that name in the kernel is the same.
func (p *plan) chain(name, salt string, rules ...exprs) string {
	return p.hook(hook{}, name, salt, rules...)
}

// hook is when the kernel calls a chain: never if it is empty.
type hook struct {
	kind     nftables.ChainType
	number   *nftables.ChainHook
	priority nftables.ChainPriority
}

func (p *plan) hook(h hook, name, salt string, rules ...exprs) string {
	c := &chain{&nftables.Chain{Table: p.table, Name: name + "-" + p.hash(salt, rules)[:8], Type: h.kind, Hooknum: h.number}, rules}
	if h.number != nil {
		c.Priority = &h.priority
	}
	p.chains = append(p.chains, c)
	return c.Name
}

// hash returns one of the rules as the kernel gets them.
func (p *plan) hash(salt string, rules []exprs) string {
	h := sha256.New()
	_, _ = fmt.Fprintln(h, salt, len(rules))
	for _, r := range rules {
		for _, e := range r {
			// An expression that cannot be written is an error when the rule is added.
			b, _ := expr.Marshal(byte(p.family.table), e)
			_, _ = fmt.Fprintln(h, len(b), b)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
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
	s.ID = uint32(len(p.sets) + 1) // in this transaction; what leads to it uses its name
	added := &set{Set: &s, keys: map[string]bool{}}
	p.sets = append(p.sets, added)
	return added
}

// port adds what leads to the endpoints of a port, which are of this family only.
func (p *plan) port(s sets, port Port, bridge string) {
	protocol, translate := numberOf(port.Protocol), p.translate(port)
	name := p.chain(chainName(port), fmt.Sprint(port), append([]exprs{mark(toMasquerade)}, translate...)...)
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
	inside := verdict(expr.VerdictGoto, name)
	rules := []exprs{rule(local(true), inside)}
	if bridge != "" {
		rules = append(rules, rule(link(expr.MetaKeyIIFNAME, bridge), inside))
	}
	return p.chain("outside-"+name, "", append(rules, translate...)...)
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

// chainName is the name of a port's chain, without the hash.
func chainName(port Port) string {
	name := strings.ReplaceAll(port.Name, ":", "/") // which nft cannot read in a name
	return "port-" + name + "/" + strings.ToLower(string(port.Protocol))
}

// affinityName is the name of the set of clients of an endpoint. It stays when the port gets other endpoints.
func affinityName(port Port, e netip.AddrPort) string {
	sum := sha256.Sum256(fmt.Appendln(nil, port.Name, port.Protocol, e))
	return affinityPrefix + hex.EncodeToString(sum[:8])
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
