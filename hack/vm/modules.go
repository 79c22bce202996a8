package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// required returns the kernel modules that the machine, the engine and the network plugins
// need, without their dependencies.
func required() []string {
	return strings.Fields(`
		virtio_pci 9p 9pnet_virtio overlay crc32c_generic loop ext4
		veth bridge macvlan br_netfilter dummy ifb sch_tbf sch_ingress cls_u32 act_mirred
		nft_compat nft_chain_nat nf_tables xt_comment xt_addrtype xt_conntrack xt_MASQUERADE xt_nat xt_mark xt_multiport xt_tcpudp
		xt_sctp sctp nft_fib_inet nft_masq nft_ct nft_nat
		nft_fib_ipv4 nft_fib_ipv6 nft_numgen nft_reject_ipv4 nft_reject_ipv6 nf_conntrack_netlink`)
}

// findModules returns the files of the required modules and of their dependencies, in loading
// order.
func findModules(dir string) ([]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if name = moduleName(name); seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := files[name]
		if !ok {
			return fmt.Errorf("no module %s in %s", name, dir)
		}
		needs, err := dependencies(path)
		for _, n := range needs {
			err = errors.Join(err, add(n))
		}
		order = append(order, path)
		return err
	}
	for _, name := range required() {
		err = errors.Join(err, add(name))
	}
	return order, err
}

// moduleName returns a module's name in the kernel's spelling.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// dependencies returns the modules that must be loaded before a module.
func dependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading module %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("reading module %s: it has no .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("reading module %s: %w", path, err)
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok {
			return strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), nil
		}
	}
	return nil, nil
}
