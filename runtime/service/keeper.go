// Package service keeps the Services of a root without a daemon: their names are lines in the hosts files of
// containers, and their addresses are rules in the kernel. Both outlive this program. What they say follows
// from two things alone, the Services that were defined and the records of the pods: whoever changes one of
// them calls Update.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/service/rules"
)

const (
	// lockTimeout bounds the wait for another process that changes the rules, which takes milliseconds.
	lockTimeout = 20 * time.Second
	// recheck is how long the rules are taken to be there: a reload of the machine's firewall may delete
	// them at any time.
	recheck = 10 * time.Second
	// lookupTimeout bounds the lookup of the name of a Service of type ExternalName.
	lookupTimeout = 5 * time.Second
)

// Kernel keeps the rules of Services. Its methods are those of package rules.
type Kernel interface {
	Apply(ctx context.Context, t rules.Table) error
	Present(name string) (bool, error)
	Remove(ctx context.Context, name string) error
}

// Options say what a Keeper works with. All must be set but those that say otherwise.
type Options struct {
	Records *record.Store
	// HostsFile returns the path of the hosts file of a pod, which need not exist.
	HostsFile func(uid types.UID) string
	Kernel    Kernel
	// Table is the name of the table of rules, and Bridge that of the pods' own bridge, which need not
	// exist.
	Table, Bridge string
	// Ranges are those of --service-cidr, the first of the family that is the default. Without one for a
	// family of Families, FreeRange chooses it.
	Ranges    []netip.Prefix
	Families  []v1.IPFamily
	FreeRange func(f v1.IPFamily) (netip.Prefix, error)
	// HostIPs are the addresses of the machine.
	HostIPs []string
	// ClusterDomain is the domain of the names, default cluster.local.
	ClusterDomain string
	// LookUp returns the addresses of a name outside.
	LookUp func(ctx context.Context, name string) ([]netip.Addr, error)
	Log    *slog.Logger
}

// Keeper keeps the Services of a root. It is safe for concurrent use, also by several processes.
type Keeper struct {
	o Options

	mu    sync.Mutex // guards the next three
	next  *pass      // the one that has not begun yet, nil for none
	known state      // as it was read from the file; shared
	file  fs.FileInfo

	turn    chan struct{} // has room for the one pass at a time; guards the rest
	applied rules.Table
	checked time.Time                 // when the rules were there
	written map[types.UID]writtenFile // by pod
}

// writtenFile is the last version of a hosts file.
type writtenFile struct {
	names []entry
	info  fs.FileInfo
}

// New returns a Keeper. It touches nothing yet.
func New(o Options) *Keeper {
	o.ClusterDomain = cmp.Or(o.ClusterDomain, "cluster.local")
	return &Keeper{o: o, turn: make(chan struct{}, 1), written: map[types.UID]writtenFile{}}
}

func (k *Keeper) root() string { return k.o.Records.Root() }

// load returns the state, which is read again only if the file has changed.
func (k *Keeper) load() (state, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, err := os.Stat(filepath.Join(k.root(), stateFile))
	if err == nil && k.file != nil && os.SameFile(now, k.file) && now.ModTime().Equal(k.file.ModTime()) {
		return k.known, nil
	}
	k.file = now
	k.known, err = load(k.root())
	if err != nil {
		k.file = nil
	}
	return k.known, err
}

// InvalidError says that Services cannot be had as they are given: the input is wrong, or what was asked for with it.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// Define puts Services in place of those of the same names, and removes those that are gone. It gives them their
// addresses and brings all up to date. Those of other inputs stay. pods are those of the input, whose host ports are no node
// ports. If the Services cannot be had as they are given, the error is an InvalidError, and nothing has changed.
func (k *Keeper) Define(ctx context.Context, services []*v1.Service, gone func(*v1.Service) bool, pods []*v1.Pod) error {
	if len(services) == 0 {
		if s, err := k.load(); err != nil || !slices.ContainsFunc(s.Services, gone) {
			return err
		}
	}
	err := k.locked(func() error {
		old, err := k.load()
		if err != nil {
			return err
		}
		left := func(svc *v1.Service) bool { return !gone(svc) && !slices.ContainsFunc(services, named(svc)) }
		ranges, err := k.ranges(old, slices.ContainsFunc(old.Services, left))
		if err != nil {
			return &InvalidError{err}
		}
		known, err := k.o.Records.List()
		if err != nil {
			return err
		}
		for _, r := range known {
			if !r.Removed {
				pods = append(pods, r.Pod)
			}
		}
		next, err := old.define(services, gone, ranges, pods)
		if err != nil {
			return &InvalidError{err}
		}
		k.lookUp(ctx, &next, services)
		return next.save(k.root())
	})
	if err != nil {
		return err
	}
	return k.Update(ctx)
}

func named(svc *v1.Service) func(*v1.Service) bool {
	return func(o *v1.Service) bool { return key(o) == key(svc) }
}

// Remove removes the Services that are chosen, and returns their names.
func (k *Keeper) Remove(ctx context.Context, chosen func(*v1.Service) bool) (names []string, err error) {
	services, err := k.Services()
	if err != nil {
		return nil, err
	}
	for _, svc := range services {
		if chosen(svc) {
			names = append(names, key(svc).String())
		}
	}
	return names, k.Define(ctx, nil, chosen, nil)
}

// Services returns the Services with their cluster IPs and node ports, by namespace and name.
func (k *Keeper) Services() ([]*v1.Service, error) {
	s, err := k.load()
	return s.Services, err
}

// Unready returns, by the names of Services that refuse connections, a pod that is not ready of each.
func (k *Keeper) Unready() (map[string]*v1.Pod, error) {
	s, err := k.load()
	if err != nil {
		return nil, err
	}
	members, err := k.members()
	if err != nil {
		return nil, err
	}
	unready := map[string]*v1.Pod{}
	for _, svc := range s.Services {
		if len(endpoints(svc, members)) > 0 {
			continue
		}
		i := slices.IndexFunc(members, func(m member) bool { return podspec.Selects(svc, m.pod) })
		if i >= 0 {
			unready[key(svc).String()] = members[i].pod
		}
	}
	return unready, nil
}

// ranges returns the ranges of cluster IPs: those that were asked for, else those that are in use.
func (k *Keeper) ranges(old state, inUse bool) ([]netip.Prefix, error) {
	ranges := slices.Clone(k.o.Ranges)
	for _, f := range k.o.Families {
		has := func(r netip.Prefix) bool { return familyOf(r.Addr()) == f }
		if slices.ContainsFunc(ranges, has) {
			continue
		}
		if i := slices.IndexFunc(old.Ranges, has); i >= 0 {
			ranges = append(ranges, old.Ranges[i])
			continue
		}
		r, err := k.o.FreeRange(f)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	for _, r := range old.Ranges {
		switch i := slices.IndexFunc(ranges, func(o netip.Prefix) bool { return familyOf(o.Addr()) == familyOf(r.Addr()) }); {
		case !inUse || i >= 0 && ranges[i] == r:
		case i < 0:
			ranges = append(ranges, r)
		default:
			return nil, rangeInUse(r, ranges[i])
		}
	}
	return ranges, nil
}

// lookUp finds the addresses of the names outside that Services stand for.
func (k *Keeper) lookUp(ctx context.Context, s *state, services []*v1.Service) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, svc := range services {
		if !isExternal(svc) || s.find(serviceOf(svc.Spec.ExternalName, k.o.ClusterDomain)) != nil {
			continue
		}
		ips, err := k.o.LookUp(ctx, svc.Spec.ExternalName)
		if err != nil {
			k.o.Log.WarnContext(ctx, "could not look up the externalName of a Service; pods will not find it by its name", "service", key(svc).String(), "error", err)
			continue
		}
		if s.External == nil {
			s.External = map[string][]netip.Addr{}
		}
		s.External[key(svc).String()] = ips
	}
}

// Environment returns the variables about Services for the containers of the pod.
func (k *Keeper) Environment(pod *v1.Pod) ([]v1.EnvVar, error) {
	services, err := k.Services()
	return environment(services, pod), err
}

// WithNames returns the hosts file of a pod with the names that there are now.
func (k *Keeper) WithNames(pod *v1.Pod, file []byte) ([]byte, error) {
	s, err := k.load()
	if err != nil {
		return nil, err
	}
	members, err := k.members()
	if err != nil {
		return nil, err
	}
	return withNames(file, s.names(pod.Namespace, k.o.ClusterDomain, members)), nil
}

// members returns the pods that have addresses, by namespace and name.
func (k *Keeper) members() ([]member, error) {
	all, err := k.o.Records.List()
	if err != nil {
		return nil, err
	}
	members := make([]member, 0, len(all))
	for _, r := range all {
		if r.Sandbox == nil || r.Sandbox.BootID != process.BootID() || r.OtherVersion() {
			continue
		}
		members = append(members, member{pod: r.Pod, ips: parse(r.Sandbox.IPs), ready: r.Ready && r.Failed == nil})
	}
	return members, nil
}

// pass brings the rules and the names up to date once, for all who have asked for it before it has begun.
type pass struct {
	done chan struct{}
	err  error
}

// Update brings the rules and the names up to date with the Services and the records of the pods, as they were
// when it was called or later. Calls at the same time share the work.
func (k *Keeper) Update(ctx context.Context) error {
	k.mu.Lock()
	p := k.next
	if p != nil {
		k.mu.Unlock()
		select {
		case <-p.done:
			return p.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p = &pass{done: make(chan struct{})}
	k.next = p
	k.mu.Unlock()
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.mu.Lock()
	k.next = nil
	k.mu.Unlock()
	defer close(p.done)
	p.err = k.locked(func() error { return k.update(context.WithoutCancel(ctx)) })
	return p.err
}

// Keep is Update if the rules may have been deleted by somebody else.
func (k *Keeper) Keep(ctx context.Context) error {
	k.turn <- struct{}{}
	due := len(k.applied.Ports) > 0 && time.Since(k.checked) > recheck
	<-k.turn
	if !due {
		return nil
	}
	return k.Update(ctx)
}

// locked calls f while no other process changes the Services or their rules.
func (k *Keeper) locked(f func() error) error {
	if err := os.MkdirAll(k.root(), 0o711); err != nil {
		return fmt.Errorf("locking the Services: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(k.root(), lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the Services: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := flock.Wait(file, lockTimeout); err != nil {
		return fmt.Errorf("locking the Services: %w", err)
	}
	return f()
}

// update is Update under the locks.
func (k *Keeper) update(ctx context.Context) error {
	s, err := k.load()
	if err != nil {
		return err
	}
	members, err := k.members()
	if err != nil {
		return err
	}
	return errors.Join(k.updateRules(ctx, &s, members), k.updateNames(s, members))
}

// updateRules changes the rules if they are others than the last ones of this process, or are gone.
func (k *Keeper) updateRules(ctx context.Context, s *state, members []member) error {
	ports := s.ports(members)
	if len(ports) == 0 && !s.Rules {
		return nil
	}
	if len(ports) == 0 {
		if err := k.o.Kernel.Remove(ctx, k.o.Table); err != nil {
			return fmt.Errorf("removing the rules of Services: %w", err)
		}
		s.Rules, k.applied = false, rules.Table{}
		return s.save(k.root())
	}
	table := rules.Table{Name: k.o.Table, Ranges: s.Ranges, Bridge: k.o.Bridge, Source: parse(k.o.HostIPs), Ports: ports}
	if reflect.DeepEqual(table, k.applied) {
		if time.Since(k.checked) < recheck {
			return nil
		}
		there, err := k.o.Kernel.Present(k.o.Table)
		if k.checked = time.Now(); err == nil && there {
			return nil
		}
	}
	if !s.Rules {
		s.Rules = true
		if err := s.save(k.root()); err != nil {
			return err
		}
	}
	k.applied = rules.Table{}
	if err := k.o.Kernel.Apply(ctx, table); err != nil {
		return fmt.Errorf("changing the rules of Services: %w", err)
	}
	k.applied, k.checked = table, time.Now()
	return nil
}

// updateNames changes the hosts files of all pods whose names are others than this process has written.
func (k *Keeper) updateNames(s state, members []member) error {
	var errs []error
	byNamespace := map[string][]entry{}
	written := make(map[types.UID]writtenFile, len(members))
	for _, m := range members {
		names, ok := byNamespace[m.pod.Namespace]
		if !ok {
			names = s.names(m.pod.Namespace, k.o.ClusterDomain, members)
			byNamespace[m.pod.Namespace] = names
		}
		path, last := k.o.HostsFile(m.pod.UID), k.written[m.pod.UID]
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it gets the names when it is made
			continue
		case err == nil && last.info != nil && os.SameFile(info, last.info) && reflect.DeepEqual(names, last.names):
			written[m.pod.UID] = last
			continue
		case err == nil:
			err = rewrite(path, names)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("changing the hosts file of pod %q: %w", podspec.FullName(m.pod), err))
			continue
		}
		written[m.pod.UID] = writtenFile{names, info}
	}
	k.written = written
	return errors.Join(errs...)
}

// rewrite changes the names in a hosts file. It is not replaced, since it is mounted in running containers.
func rewrite(path string, names []entry) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file := withNames(old, names)
	if slices.Equal(old, file) {
		return nil
	}
	return atomicfile.Overwrite(path, file, 0o644)
}
