package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
)

// nft makes rules on machines without iptables. Each bridge has a table of its own name,
// with a chain for its pods' host ports, where each rule has the pod's UID as a comment.
type nft struct{ dir string }

// run runs nft. A listing (-a) leaves out the elements of sets (-t): block lists have many.
func (n nft) run(ctx context.Context, stdin string, lock hostLock, args ...string) (string, error) {
	return runProgram(ctx, lock, stdin, filepath.Join(n.dir, "nft"), args...)
}

func (n nft) open(ctx context.Context, b podBridge, lock hostLock) error {
	if err := routeLocalnet(b); err != nil {
		return err
	}
	if _, err := n.run(ctx, bridgeScript(b), lock, "-f", "-"); err != nil {
		return fmt.Errorf("adding the rules of bridge %q: %w", b.Name, err)
	}
	return nil
}

func (n nft) try(ctx context.Context, b podBridge) (string, error) {
	_, err := n.run(ctx, bridgeScript(b), hostLock{}, "--check", "-f", "-")
	return "nft", err
}

// acceptForward adds rules that accept the bridge's packets to the forward chains of other
// programs, which may drop them: also where the bridge's own rules are made with iptables.
//
// closed are as forwardScript returns them.
func (n nft) acceptForward(ctx context.Context, b podBridge, lock hostLock) (closed []string, err error) {
	listing, err := n.run(ctx, "", lock, "-a", "-t", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	script, closed := forwardScript(b, parseChains(listing))
	if script == "" {
		return closed, nil
	}
	if _, err := n.run(ctx, script, lock, "-f", "-"); err != nil {
		return nil, fmt.Errorf("accepting the packets of bridge %q: %w", b.Name, err)
	}
	return closed, nil
}

func (n nft) remove(ctx context.Context, b podBridge, lock hostLock, _ *slog.Logger) error {
	listing, err := n.run(ctx, "", lock, "-a", "-t", "list", "ruleset")
	if err != nil {
		return err
	}
	script := deletions(parseChains(listing), ruleComment(b.Name))
	if strings.Contains(listing, "table inet "+b.Name+" {") {
		script += "delete table inet " + b.Name + "\n"
	}
	if script == "" {
		return nil
	}
	if _, err := n.run(ctx, script, lock, "-f", "-"); err != nil {
		return fmt.Errorf("removing the rules of bridge %q: %w", b.Name, err)
	}
	return nil
}

func (n nft) mapped(ctx context.Context, b podBridge, lock hostLock) (func(uid string) bool, error) {
	listing, err := n.run(ctx, "", lock, "list", "chain", "inet", b.Name, "hostports")
	return func(uid string) bool {
		return strings.Contains(listing, fmt.Sprintf("comment %q", portRules{UID: uid}.comment()))
	}, err
}

// routeLocalnet lets the machine reach its pods' host ports at 127.0.0.1, as the portmap
// plugin does.
func routeLocalnet(b podBridge) error {
	if b.subnet(false) == nil {
		return nil
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+b.Name+"/route_localnet", []byte("1"), 0); err != nil {
		return fmt.Errorf("letting bridge %q route to 127.0.0.1: %w", b.Name, err)
	}
	return nil
}

// The scripts for a bridge's table: one for the table, which keeps its host ports, and one for
// each subnet.
const (
	tableScript = `add table inet BRIDGE
add chain inet BRIDGE hostports
add chain inet BRIDGE prerouting { type nat hook prerouting priority -100; }
add chain inet BRIDGE output { type nat hook output priority -100; }
add chain inet BRIDGE postrouting { type nat hook postrouting priority 100; }
add chain inet BRIDGE input { type filter hook input priority 0; }
flush chain inet BRIDGE prerouting
flush chain inet BRIDGE output
flush chain inet BRIDGE postrouting
flush chain inet BRIDGE input
add rule inet BRIDGE prerouting fib daddr type local jump hostports
add rule inet BRIDGE output fib daddr type local ip6 daddr != ::1 jump hostports
add rule inet BRIDGE output fib daddr type local meta nfproto ipv4 jump hostports
add rule inet BRIDGE postrouting ip saddr 127.0.0.0/8 oifname "BRIDGE" masquerade
add rule inet BRIDGE input iifname "BRIDGE" ip daddr 127.0.0.0/8 ct state new drop
`
	subnetScript = `add rule inet BRIDGE postrouting IP saddr SUBNET IP daddr != MULTICAST oifname != "BRIDGE" masquerade
# A pod's reply to another pod must return through the host.
add rule inet BRIDGE postrouting IP saddr SUBNET oifname "BRIDGE" ct status dnat masquerade
`
)

// bridgeScript creates or updates the bridge's table.
func bridgeScript(b podBridge) string {
	script := tableScript
	for _, subnet := range b.Subnets {
		ip, multicast := "ip", "224.0.0.0/4"
		if subnet.IP.To4() == nil {
			ip, multicast = "ip6", "ff00::/8"
		}
		script += strings.NewReplacer("IP", ip, "SUBNET", subnet.String(), "MULTICAST", multicast).Replace(subnetScript)
	}
	return strings.ReplaceAll(script, "BRIDGE", b.Name)
}

// chain is a chain with its rules as nft lists them.
type chain struct {
	family, table, name string
	base                string // "filter hook forward" of a chain that the kernel calls
	owned               bool   // only the process that made the table can change it
	rules               []string
}

// parseChains reads the output of nft -a list.
func parseChains(listing string) []chain {
	var all []chain
	family, table, inside, owned := "", "", false, false
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		switch {
		case opens(f, "table", 3):
			family, table, owned = f[1], f[2], false
		case strings.HasPrefix(line, "flags ") && !inside:
			owned = owned || strings.Contains(line, "owner")
		case opens(f, "chain", 2):
			all, inside = append(all, chain{family: family, table: table, name: f[1], owned: owned}), true
		case line == "}":
			inside = false
		case !inside:
		case len(f) >= 4 && f[0] == "type" && f[2] == "hook":
			all[len(all)-1].base = strings.Join(f[1:4], " ")
		case line != "":
			all[len(all)-1].rules = append(all[len(all)-1].rules, line)
		}
	}
	return all
}

// opens reports whether the fields of a line are the kind and name of n words and a brace.
func opens(f []string, kind string, n int) bool {
	return len(f) > n && f[0] == kind && f[n] == "{"
}

// accepts reports whether the chain has a rule that accepts what comes from the bridge, or goes to
// it: our own, or that of iptables in a chain of its nftables variant.
func (c chain) accepts(direction, bridge string) bool {
	return slices.ContainsFunc(c.rules, func(rule string) bool {
		rest, ok := strings.CutPrefix(rule, fmt.Sprintf("%s %q ", direction, bridge))
		f := strings.Fields(rest)
		if ok && len(f) > 5 && f[0] == "counter" { // packets N bytes N
			f = f[5:]
		}
		return ok && len(f) > 0 && f[0] == "accept"
	})
}

// forwardScript accepts the bridge's packets in each forward chain, since its policy may be
// to drop. closed are the tables where only their owners can do that for good, and have not.
func forwardScript(b podBridge, chains []chain) (script string, closed []string) {
	var s strings.Builder
	for _, c := range chains {
		if c.base != "filter hook forward" || !b.has(c.family) {
			continue
		}
		// firewalld makes its table again when it reloads.
		if table := c.family + " " + c.table; (c.owned || c.table == "firewalld") && !c.tableNames(b.Name, chains) && !slices.Contains(closed, table) {
			closed = append(closed, table)
		}
		if c.owned {
			continue
		}
		for _, direction := range []string{"iifname", "oifname"} {
			if !c.accepts(direction, b.Name) {
				fmt.Fprintf(&s, "insert rule %s %s %s %s %q accept comment %q\n", c.family, c.table, c.name, direction, b.Name, ruleComment(b.Name))
			}
		}
	}
	return s.String(), closed
}

// tableNames reports whether a rule of the chain's table that is not ours names the bridge.
func (c chain) tableNames(bridge string, chains []chain) bool {
	return slices.ContainsFunc(chains, func(o chain) bool {
		return o.family == c.family && o.table == c.table && slices.ContainsFunc(o.rules, func(rule string) bool {
			return strings.Contains(rule, strconv.Quote(bridge)) && !strings.Contains(rule, strconv.Quote(ruleComment(bridge)))
		})
	})
}

// deletions returns the commands that delete the rules with the comment.
func deletions(chains []chain, comment string) string {
	var s strings.Builder
	for _, c := range chains {
		for _, rule := range c.rules {
			if _, handle, ok := strings.Cut(rule, fmt.Sprintf("comment %q # handle ", comment)); ok {
				fmt.Fprintf(&s, "delete rule %s %s %s handle %s\n", c.family, c.table, c.name, handle)
			}
		}
	}
	return s.String()
}

// portRules are the host ports of a pod, in the table of its bridge.
type portRules struct {
	Path        string   // directories of the program nft
	Lock        *os.File // nft inherits it: the pod stays locked if only this process is killed
	Bridge, UID string
	IPs         []string // the pod's
	Ports       []portMapping
}

// Add maps the ports to the pod.
func (p portRules) Add(ctx context.Context) error {
	if len(p.Ports) == 0 {
		return nil
	}
	n, err := findNFT(p.Path)
	if err != nil {
		return err
	}
	if _, err := n.run(ctx, p.script(), hostLock{p.Lock}, "-f", "-"); err != nil {
		return fmt.Errorf("mapping host ports: %w", err)
	}
	return p.forget()
}

// Remove unmaps the ports. Absent ones are no error.
func (p portRules) Remove(ctx context.Context) error {
	if len(p.Ports) == 0 {
		return nil
	}
	n, err := findNFT(p.Path)
	if err != nil {
		return err
	}
	return p.remove(ctx, n)
}

func (p portRules) remove(ctx context.Context, n nft) error {
	listing, err := n.run(ctx, "", hostLock{p.Lock}, "-a", "-t", "list", "ruleset", "inet")
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(parseChains(listing), func(c chain) bool { return c.table != p.Bridge })
	script := deletions(own, p.comment())
	if script == "" {
		return nil
	}
	if _, err := n.run(ctx, script, hostLock{p.Lock}, "-f", "-"); err != nil {
		return fmt.Errorf("unmapping host ports: %w", err)
	}
	return p.forget()
}

func findNFT(path string) (nft, error) {
	if dir := dirOf("nft", path); dir != "" {
		return nft{dir}, nil
	}
	return nft{}, failure.Permanentf("nft not found in %s: install the package nftables", path)
}

// comment names the pod; nft allows 128 bytes.
func (p portRules) comment() string {
	if len(p.UID) <= 100 {
		return "pod " + p.UID
	}
	sum := sha256.Sum256([]byte(p.UID))
	return "pod " + hex.EncodeToString(sum[:])
}

func (p portRules) script() string {
	var s strings.Builder
	for _, ip := range p.IPs {
		family, target := "ip", ip
		v6 := net.ParseIP(ip).To4() == nil
		if v6 {
			family, target = "ip6", "["+ip+"]"
		}
		for _, m := range p.Ports {
			match := "meta nfproto " + map[bool]string{false: "ipv4", true: "ipv6"}[v6]
			if host := net.ParseIP(m.HostIP); host != nil {
				if (host.To4() == nil) != v6 {
					continue
				}
				if !host.IsUnspecified() {
					match = family + " daddr " + host.String()
				}
			}
			fmt.Fprintf(&s, "add rule inet %s hostports %s %s dport %d dnat %s to %s:%d comment %q\n",
				p.Bridge, match, m.Protocol, m.HostPort, family, target, m.ContainerPort, p.comment())
		}
	}
	return s.String()
}

// forget removes connection tracking entries of UDP ports: later datagrams would still go
// where the first one went. A kernel that cannot list its entries is no error.
func (p portRules) forget() error {
	for _, m := range p.Ports {
		if m.Protocol != "udp" {
			continue
		}
		filter := &netlink.ConntrackFilter{}
		err := filter.AddProtocol(unix.IPPROTO_UDP)
		if err == nil {
			err = filter.AddPort(netlink.ConntrackOrigDstPort, uint16(m.HostPort))
		}
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			if err == nil {
				_, err = Listed(func() (uint, error) { return netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter) })
			}
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("removing connection tracking entries of UDP port %d: %w", m.HostPort, err)
		}
	}
	return nil
}
