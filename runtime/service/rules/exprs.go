package rules

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// exprs is a part of a rule: what nft calls an expression or a statement takes one or more of the kernel's.
type exprs []expr.Any

// rule puts the parts of a rule together.
func rule(parts ...exprs) exprs { return slices.Concat(parts...) }

// The registers of a key or value, each of 32 bits: an address of IPv4 takes one, of IPv6 four.
const firstRegister = unix.NFT_REG32_00

// family is what differs between IPv4 and IPv6.
type family struct {
	table        nftables.TableFamily
	inet         netlink.InetFamily
	address      nftables.SetDatatype
	registers    uint32 // of an address
	saddr, daddr uint32 // offsets in a packet, in bytes
	loopback     []byte // the first bytes of loopback addresses
}

var (
	ipv4 = family{nftables.TableFamilyIPv4, unix.AF_INET, nftables.TypeIPAddr, 1, 12, 16, []byte{127}}
	ipv6 = family{nftables.TableFamilyIPv6, unix.AF_INET6, nftables.TypeIP6Addr, 4, 8, 24, netip.IPv6Loopback().AsSlice()}
)

// has reports whether the address is of the family.
func (f family) has(a netip.Addr) bool { return a.Unmap().Is4() == (f.inet == unix.AF_INET) }

// loopbackDestination is "ip daddr 127.0.0.0/8" or, if not equal, "ip daddr != 127.0.0.0/8".
func (f family) loopbackDestination(op expr.CmpOp) exprs {
	return exprs{
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: f.daddr, Len: uint32(len(f.loopback)), DestRegister: firstRegister},
		&expr.Cmp{Op: op, Register: firstRegister, Data: f.loopback},
	}
}

// destination loads "ip daddr".
func (f family) destination() exprs {
	return exprs{&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: f.daddr, Len: f.address.Bytes, DestRegister: firstRegister}}
}

// source loads "ip saddr".
func (f family) source() exprs {
	return exprs{&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: f.saddr, Len: f.address.Bytes, DestRegister: firstRegister}}
}

// destinationPort loads "ip daddr . meta l4proto . th dport".
func (f family) destinationPort() exprs {
	return rule(f.destination(), portFrom(firstRegister+f.registers))
}

// portFrom loads "meta l4proto . th dport" into a register and the next.
func portFrom(register uint32) exprs {
	return exprs{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: register + 1},
	}
}

// vmap is "vmap @m" of what is loaded.
func vmap(m *set) exprs {
	return exprs{&expr.Lookup{SourceRegister: firstRegister, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: m.Name}}
}

// in is "@s" of what is loaded.
func in(s *set) exprs {
	return exprs{&expr.Lookup{SourceRegister: firstRegister, SetName: s.Name}}
}

// update is "update @s { ... timeout d }" of what is loaded.
func update(s *set, d time.Duration) exprs {
	return exprs{&expr.Dynset{SrcRegKey: firstRegister, SetName: s.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: d}}
}

// local is "fib daddr type local" or "fib saddr type local".
func local(source bool) exprs {
	return exprs{
		&expr.Fib{Register: firstRegister, ResultADDRTYPE: true, FlagDADDR: !source, FlagSADDR: source},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// l4proto is "meta l4proto tcp".
func l4proto(number byte) exprs {
	return exprs{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: []byte{number}},
	}
}

// link is "iifname" or "oifname".
func link(key expr.MetaKey, name string) exprs {
	value := make([]byte, unix.IFNAMSIZ)
	copy(value, name)
	return exprs{
		&expr.Meta{Key: key, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: value},
	}
}

// isNew is "ct state new".
func isNew() exprs {
	return rule(
		exprs{&expr.Ct{Key: expr.CtKeySTATE, Register: firstRegister}},
		bits(expr.CtStateBitNEW, 0),
		exprs{&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: make([]byte, 4)}},
	)
}

// bits makes "(v & mask) ^ xor" of what is loaded.
func bits(mask, xor uint32) exprs {
	return exprs{&expr.Bitwise{
		SourceRegister: firstRegister, DestRegister: firstRegister, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
	}}
}

// mark is "meta mark set mark | m".
func mark(m uint32) exprs {
	return rule(
		exprs{&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister}},
		bits(^m, m),
		exprs{&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister, SourceRegister: true}},
	)
}

// unmark is "meta mark set mark & ~m".
func unmark(m uint32) exprs {
	return rule(
		exprs{&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister}},
		bits(^m, 0),
		exprs{&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister, SourceRegister: true}},
	)
}

// unmarked is "meta mark & m == 0".
func unmarked(m uint32) exprs {
	return rule(
		exprs{&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister}},
		bits(m, 0),
		exprs{&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: make([]byte, 4)}},
	)
}

// oneOf is "numgen random mod n 0".
func oneOf(n int) exprs {
	return exprs{
		&expr.Numgen{Register: firstRegister, Type: unix.NFT_NG_RANDOM, Modulus: uint32(n)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: make([]byte, 4)},
	}
}

// dnat is "dnat to 10.0.0.1:80".
func (f family) dnat(to netip.AddrPort) exprs {
	return exprs{
		&expr.Immediate{Register: firstRegister, Data: to.Addr().Unmap().AsSlice()},
		&expr.Immediate{Register: firstRegister + f.registers, Data: binary.BigEndian.AppendUint16(nil, to.Port())},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: uint32(f.table), Specified: true,
			RegAddrMin: firstRegister, RegProtoMin: firstRegister + f.registers,
		},
	}
}

// verdict is "return", "drop", "jump chain" or "goto chain".
func verdict(kind expr.VerdictKind, chain string) exprs {
	return exprs{&expr.Verdict{Kind: kind, Chain: chain}}
}

// rejectTCP is "meta l4proto tcp reject with tcp reset": unlike messages of ICMP the kernel does not limit their rate.
func rejectTCP() exprs {
	return rule(l4proto(unix.IPPROTO_TCP), exprs{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
}

// rejectAll is "reject", with a message of ICMP that the port is unreachable.
func (f family) rejectAll() exprs {
	code := map[netlink.InetFamily]byte{unix.AF_INET: 3, unix.AF_INET6: 4}[f.inet]
	return exprs{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
}

// numberOf returns the number of a transport protocol.
func numberOf(p v1.Protocol) byte {
	switch p {
	case v1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case v1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	default:
		return unix.IPPROTO_TCP
	}
}

// portKey is the key "protocol . port", where each part takes 32 bits.
func portKey(protocol byte, port uint16) []byte {
	return []byte{protocol, 0, 0, 0, byte(port >> 8), byte(port), 0, 0}
}

// addressKey is the key "address . protocol . port".
func addressKey(a netip.Addr, protocol byte, port uint16) []byte {
	return append(a.Unmap().AsSlice(), portKey(protocol, port)...)
}
