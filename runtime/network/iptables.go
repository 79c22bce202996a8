package network

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// iptables runs the machine's iptables programs, legacy or nftables: the CNI plugins use the
// same.
type iptables struct {
	dir    string // of the programs
	legacy bool   // for iptables-legacy: the packets that ours accepts must pass its rules as well
	v6     bool   // for ip6tables
	lock   hostLock
}

// open adds the bridge's rules, in place of those for another subnet that a bridge of this
// name had. It marks the portmap plugin's chains if they do not exist yet.
func (t iptables) open(ctx context.Context, b podBridge, lock hostLock) error {
	t.lock = lock
	for _, subnet := range b.Subnets {
		t.v6 = subnet.IP.To4() == nil
		rules, err := t.save(ctx)
		if err != nil {
			return err
		}
		if t.legacy {
			if err := t.apply(ctx, rules.acceptance(b.Name, subnet)); err != nil {
				return err
			}
			continue
		}
		changes := []ruleset{rules.portChainSetup()}
		if !rules.hasBridge(b.Name, subnet) {
			changes = append(changes, rules.own(b.Name).deletion(), bridgeRules(b.Name, subnet))
		}
		if err := t.apply(ctx, changes...); err != nil {
			return fmt.Errorf("adding the rules of bridge %q: %w", b.Name, err)
		}
	}
	return nil
}

func (t iptables) remove(ctx context.Context, b podBridge, lock hostLock, log *slog.Logger) error {
	t.lock = lock
	families := []bool{false}
	// A bridge that is gone, or was down, may have had addresses of IPv6.
	if dirOf("ip6tables-save", t.dir) != "" {
		families = append(families, true)
	}
	for _, t.v6 = range families {
		rules, err := t.save(ctx)
		if err != nil {
			return err
		}
		if err := t.apply(ctx, rules.own(b.Name).deletion()); err != nil {
			return fmt.Errorf("removing the rules of bridge %q: %w", b.Name, err)
		}
		if err := t.apply(ctx, rules.portChainDeletion()); err != nil {
			// Somebody else's plugin has just started to use them.
			log.Warn("could not remove the port mapping chains", "error", err)
		}
	}
	return nil
}

func (t iptables) try(ctx context.Context, b podBridge) (string, error) {
	_, err := t.run(ctx, tablesScript(bridgeRules(b.Name, b.subnet(false))), "iptables-restore", "--noflush", "--wait", "--test")
	return "iptables", err
}

func (t iptables) mapped(ctx context.Context, b podBridge, lock hostLock) (func(uid string) bool, error) {
	t.lock, t.v6 = lock, b.subnet(false) == nil
	rules, err := t.save(ctx)
	return func(uid string) bool {
		return slices.ContainsFunc(rules["nat"], func(line string) bool {
			return strings.HasPrefix(line, "-A "+portChainDNAT+" ") && strings.Contains(line, fmt.Sprintf(`id: \"%s\"`, uid))
		})
	}, err
}

func (t iptables) run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	if t.legacy {
		name = strings.Replace(name, "-", "-legacy-", 1)
	}
	if t.v6 {
		name = "ip6" + strings.TrimPrefix(name, "ip")
	}
	return runProgram(ctx, t.lock, stdin, filepath.Join(t.dir, name), args...)
}

// ruleset holds lines in the format of iptables-save by their table.
type ruleset map[string][]string

// save returns the rules of all tables.
func (t iptables) save(ctx context.Context) (ruleset, error) {
	out, err := t.run(ctx, "", "iptables-save")
	if err != nil {
		return nil, err
	}
	return parseRules(out), nil
}

func parseRules(saved string) ruleset {
	rules, table := ruleset{}, ""
	for line := range strings.SplitSeq(saved, "\n") {
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = strings.TrimSpace(name)
		} else if strings.HasPrefix(line, ":") || strings.HasPrefix(line, "-A ") {
			rules[table] = append(rules[table], line)
		}
	}
	return rules
}

// tablesScript returns the changes, one after the other, as input for iptables-restore.
func tablesScript(changes ...ruleset) string {
	all := ruleset{}
	for _, c := range changes {
		for table, lines := range c {
			all[table] = append(all[table], lines...)
		}
	}
	var b strings.Builder
	for _, table := range slices.Sorted(maps.Keys(all)) {
		if len(all[table]) > 0 {
			b.WriteString("*" + table + "\n" + strings.Join(all[table], "\n") + "\nCOMMIT\n")
		}
	}
	return b.String()
}

// apply carries out the changes; of each table all or none.
func (t iptables) apply(ctx context.Context, changes ...ruleset) error {
	input := tablesScript(changes...)
	if input == "" {
		return nil
	}
	_, err := t.run(ctx, input, "iptables-restore", "--noflush", "--wait")
	return err
}

// bridgeRules returns the rules of a bridge: what leaves its subnet gets the host's address,
// and the host forwards it even if the chain's policy is to drop, as Docker sets it. For host
// ports the portmap plugin lets the bridge route to the host's loopback; only connections
// from the host may use that.
func bridgeRules(bridge string, subnet *net.IPNet) ruleset {
	mark := ` -m comment --comment "` + ruleComment(bridge) + `" -j `
	multicast := "ff00::/8"
	filter := []string{
		"-I FORWARD -i " + bridge + mark + "ACCEPT",
		"-I FORWARD -o " + bridge + mark + "ACCEPT",
	}
	if subnet.IP.To4() != nil {
		multicast = "224.0.0.0/4"
		filter = append(filter, "-I INPUT -d 127.0.0.0/8 -i "+bridge+" -m conntrack --ctstate NEW"+mark+"DROP")
	}
	return ruleset{
		"nat":    {"-A POSTROUTING -s " + subnet.String() + " ! -d " + multicast + " ! -o " + bridge + mark + "MASQUERADE"},
		"filter": filter,
	}
}

func ruleComment(bridge string) string { return "runonce " + bridge }

// own returns the rules that carry the bridge's comment.
func (r ruleset) own(bridge string) ruleset {
	mark := `--comment "` + ruleComment(bridge) + `"`
	own := ruleset{}
	for table, lines := range r {
		for _, line := range lines {
			if strings.HasPrefix(line, "-A ") && strings.Contains(line, mark) {
				own[table] = append(own[table], line)
			}
		}
	}
	return own
}

// hasBridge reports whether the rules of bridgeRules are there for the subnet.
func (r ruleset) hasBridge(bridge string, subnet *net.IPNet) bool {
	own := r.own(bridge)
	for table, want := range bridgeRules(bridge, subnet) {
		if len(own[table]) != len(want) {
			return false
		}
	}
	return strings.Contains(own["nat"][0], " "+subnet.String()+" ")
}

// acceptance returns the rules that accept the bridge's packets if there is a table that could drop
// them, and it does not have them yet.
func (r ruleset) acceptance(bridge string, subnet *net.IPNet) ruleset {
	if len(r["filter"]) == 0 || len(r.own(bridge)["filter"]) > 0 {
		return nil
	}
	return ruleset{"filter": bridgeRules(bridge, subnet)["filter"]}
}

// deletion returns the lines that delete the rules.
func (r ruleset) deletion() ruleset {
	lines := ruleset{}
	for table, rules := range r {
		for _, rule := range rules {
			lines[table] = append(lines[table], "-D"+strings.TrimPrefix(rule, "-A"))
		}
	}
	return lines
}

// The chains that the portmap plugin creates once and leaves behind.
const (
	portChainDNAT = "CNI-HOSTPORT-DNAT"
	portChainMasq = "CNI-HOSTPORT-MASQ"
	portChainMark = "CNI-HOSTPORT-SETMARK"
)

// portChainNote marks chains that exist only for us. It is a rule that does nothing, so that
// all instances see it and it is removed with the chains.
const portChainNote = `-A ` + portChainMark + ` -m comment --comment "made for runonce"`

// portChainSetup returns the lines that add the chains with the mark, none when the portmap plugin
// has been used on this machine before. Of several that run at once for the first pods, all but
// one would fail to create them.
func (r ruleset) portChainSetup() ruleset {
	for _, line := range r["nat"] {
		if strings.HasPrefix(line, ":"+portChainDNAT+" ") || strings.HasPrefix(line, ":"+portChainMark+" ") {
			return nil
		}
	}
	return ruleset{"nat": {":" + portChainDNAT + " - [0:0]", ":" + portChainMasq + " - [0:0]", ":" + portChainMark + " - [0:0]", portChainNote}}
}

// portChainDeletion returns the lines that delete the portmap plugin's base chains, none when
// they do not have our mark or some pod, anybody's, still has a port mapped. The chain of
// ports is not flushed: if a port is added in between, nothing is deleted.
func (r ruleset) portChainDeletion() ruleset {
	if !slices.Contains(r["nat"], portChainNote) {
		return nil
	}
	var jumps, flush, remove []string
	for _, line := range r["nat"] {
		fields := strings.Fields(line)
		name, isChain := strings.CutPrefix(fields[0], ":")
		switch {
		case isChain && (name == portChainMasq || name == portChainMark):
			flush, remove = append(flush, "-F "+name), append(remove, "-X "+name)
		case isChain && name == portChainDNAT:
			remove = append(remove, "-X "+name)
		case isChain || fields[1] == portChainMasq || fields[1] == portChainMark:
		case fields[1] == portChainDNAT:
			return nil
		case slices.Contains([]string{portChainDNAT, portChainMasq, portChainMark}, fields[len(fields)-1]):
			jumps = append(jumps, "-D"+strings.TrimPrefix(line, "-A"))
		}
	}
	return ruleset{"nat": slices.Concat(jumps, flush, remove)}
}
