// Package service keeps the Services of a root without a daemon: their names are lines in the hosts files of
// containers, and their addresses are rules in the kernel. Both outlive this program. What they say follows
// from two things alone, the Services that were defined and the records of the pods: whoever changes one of
// them calls Update.
package service

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/service/rules"
)

// lookupTimeout bounds the lookup of the name of a Service of type ExternalName.
const lookupTimeout = 5 * time.Second

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

	mu      sync.Mutex    // guards the next five
	next    *pass         // the one that has not begun yet, nil for none
	delayed *time.Timer   // for names, nil for none
	took    time.Duration // the last one
	known   state         // as it was read from the file; shared
	file    fs.FileInfo

	turn     chan struct{} // has room for the one pass at a time; guards the rest
	rested   time.Time     // when the next pass may begin
	applied  rules.Table
	checked  time.Time                 // when the rules were there
	sections map[string]*section       // by namespace, of the last pass
	written  map[types.UID]writtenFile // by pod
}

// writtenFile is the last version of a hosts file.
type writtenFile struct {
	names *section
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
	if err == nil && atomicfile.Unchanged(k.file, now) {
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
type InvalidError struct {
	// Service is the one that is wrong, and Field the field; the zero value and "" if none is.
	Service types.NamespacedName
	Field   string
	Message string
	Hint    string // may be empty
}

func (e *InvalidError) Error() string {
	text := e.Message
	if e.Field != "" {
		text = fmt.Sprintf("Service %q: %s: %s", podspec.ShortName(e.Service), e.Field, text)
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// refuse says what is wrong with a field of a Service.
func refuse(svc *v1.Service, field, hint, format string, args ...any) *InvalidError {
	return &InvalidError{Service: podspec.NameOf(svc), Field: field, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Define puts Services in place of those of the same names, and removes those that are gone. It gives them their
// addresses and brings all up to date. Those of other inputs stay. pods are those of the input, whose host ports are no node
// ports. If the Services cannot be had as they are given, the error is an InvalidError, and nothing has changed.
func (k *Keeper) Define(ctx context.Context, services []*v1.Service, gone func(*v1.Service) bool, pods []*v1.Pod) error {
	if s, err := k.load(); err != nil || len(services) == 0 && !slices.ContainsFunc(s.Services, gone) {
		return err
	}
	err := k.locked(func() error {
		old, err := k.load()
		if err != nil {
			return err
		}
		left := func(svc *v1.Service) bool { return !gone(svc) && !slices.ContainsFunc(services, named(svc)) }
		ranges, err := k.ranges(old, slices.ContainsFunc(old.Services, left))
		if err != nil {
			return err
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
			return err
		}
		k.lookUp(ctx, &next, services)
		return next.save(k.root())
	})
	if err != nil {
		return err
	}
	return k.updateAll(ctx)
}

func named(svc *v1.Service) func(*v1.Service) bool {
	return func(o *v1.Service) bool { return podspec.NameOf(o) == podspec.NameOf(svc) }
}

// Remove removes the Services that are chosen, and returns their names.
func (k *Keeper) Remove(ctx context.Context, chosen func(*v1.Service) bool) (names []string, err error) {
	services, err := k.Services()
	if err != nil {
		return nil, err
	}
	for _, svc := range services {
		if chosen(svc) {
			names = append(names, podspec.NameOf(svc).String())
		}
	}
	return names, k.Define(ctx, nil, chosen, nil)
}

// Endpoints returns the pods that the Service stands for now, by namespace and name.
func Endpoints(records *record.Store, svc *v1.Service) ([]*v1.Pod, error) {
	members, err := membersOf(records)
	if err != nil {
		return nil, err
	}
	chosen := endpoints(svc, members)
	pods := make([]*v1.Pod, 0, len(chosen))
	for _, m := range chosen {
		pods = append(pods, m.pod)
	}
	return pods, nil
}

// Recorded returns the Services of a root as Services does.
func Recorded(root string) ([]*v1.Service, error) {
	s, err := load(root)
	return s.Services, err
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
	members, err := membersOf(k.o.Records)
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
			unready[podspec.NameOf(svc).String()] = members[i].pod
		}
	}
	return unready, nil
}

// ranges returns the ranges of cluster IPs: those that were asked for, else those that are in use.
func (k *Keeper) ranges(old state, inUse bool) ([]netip.Prefix, error) {
	ranges := slices.Clone(k.o.Ranges)
	for _, f := range k.o.Families {
		has := func(r netip.Prefix) bool { return FamilyOf(r.Addr()) == f }
		if slices.ContainsFunc(ranges, has) {
			continue
		}
		if i := slices.IndexFunc(old.Ranges, has); i >= 0 {
			ranges = append(ranges, old.Ranges[i])
			continue
		}
		r, err := k.o.FreeRange(f)
		if err != nil {
			return nil, &InvalidError{Message: err.Error()}
		}
		ranges = append(ranges, r)
	}
	for _, r := range old.Ranges {
		switch i := slices.IndexFunc(ranges, func(o netip.Prefix) bool { return FamilyOf(o.Addr()) == FamilyOf(r.Addr()) }); {
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
			k.o.Log.WarnContext(ctx, "could not look up the externalName of a Service; pods will not find it by its name", "service", podspec.NameOf(svc).String(), "error", err)
			continue
		}
		if s.External == nil {
			s.External = map[string][]netip.Addr{}
		}
		s.External[podspec.NameOf(svc).String()] = ips
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
	members, err := membersOf(k.o.Records)
	if err != nil {
		return nil, err
	}
	return newSection(s.names(pod.Namespace, k.o.ClusterDomain, members)).in(nil, file), nil
}
