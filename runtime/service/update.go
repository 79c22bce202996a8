package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	// namesDelay is how long containers that run may not know the name of a pod that no Service has, or delayFactor
	// times as long as it takes to change all hosts files, each of which has the names of all pods.
	namesDelay  = time.Second
	delayFactor = 20
	// After a pass the next one waits for others to join it: restFactor times as long as it took, at most maxRest.
	// So passes take a fourth of a processor at most, however many pods come.
	restFactor = 3
	maxRest    = 200 * time.Millisecond
)

// membersOf returns the pods that have addresses, by namespace and name.
func membersOf(records *record.Store) ([]member, error) {
	all, err := records.List()
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

// Update brings the rules and the names up to date with the pod's record: when it returns if a Service has the pod, and
// otherwise soon, for all pods that come and go meanwhile.
func (k *Keeper) Update(ctx context.Context, pod *v1.Pod) error {
	s, err := k.load()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.Services, func(svc *v1.Service) bool { return podspec.Selects(svc, pod) }) {
		return k.updateAll(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.delayed == nil {
		k.delayed = time.AfterFunc(max(namesDelay, delayFactor*k.took), k.Flush)
	}
	return nil
}

// Flush does now what would be done soon. It must be called before the process ends.
func (k *Keeper) Flush() {
	k.mu.Lock()
	waits := k.delayed != nil
	if waits {
		k.delayed.Stop()
	}
	k.delayed = nil
	k.mu.Unlock()
	if waits {
		if err := k.updateAll(context.Background()); err != nil {
			k.o.Log.Warn("could not change the names of pods in hosts files", "error", err)
		}
	}
	k.turn <- struct{}{} // what began before ends before
	<-k.turn
}

// updateAll brings the rules and the names up to date with the Services and the records of the pods, as they were
// when it was called or later. Calls at the same time share the work.
func (k *Keeper) updateAll(ctx context.Context) error {
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
	time.Sleep(time.Until(k.rested))
	began := time.Now()
	k.mu.Lock()
	k.next = nil
	k.mu.Unlock()
	defer close(p.done)
	defer func() {
		took := time.Since(began)
		k.rested = time.Now().Add(min(restFactor*took, maxRest))
		k.mu.Lock()
		k.took = took
		k.mu.Unlock()
	}()
	p.err = k.locked(func() error { return k.update(context.WithoutCancel(ctx)) })
	return p.err
}

// Keep restores the rules if they may have been deleted by somebody else.
func (k *Keeper) Keep(ctx context.Context) error {
	k.turn <- struct{}{}
	due := len(k.applied.Ports) > 0 && time.Since(k.checked) > recheck
	<-k.turn
	if !due {
		return nil
	}
	return k.updateAll(ctx)
}

// locked calls f while no other process changes the Services or their rules.
func (k *Keeper) locked(f func() error) error {
	return flock.Do(filepath.Join(k.root(), lockFile), lockTimeout, f)
}

// update is updateAll under the locks.
func (k *Keeper) update(ctx context.Context) error {
	s, err := k.load()
	if err != nil {
		return err
	}
	members, err := membersOf(k.o.Records)
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
	var files rewriter
	sections := map[string]*section{}
	written := make(map[types.UID]writtenFile, len(members))
	for _, m := range members {
		names, ok := sections[m.pod.Namespace]
		if !ok {
			names = newSection(s.names(m.pod.Namespace, k.o.ClusterDomain, members))
			if old := k.sections[m.pod.Namespace]; old != nil && old.text == names.text {
				names = old
			}
			sections[m.pod.Namespace] = names
		}
		path, last := k.o.HostsFile(m.pod.UID), k.written[m.pod.UID]
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it gets the names when it is made
			continue
		case err == nil && last.info != nil && os.SameFile(info, last.info) && names == last.names:
			written[m.pod.UID] = last
			continue
		case err == nil:
			err = files.rewrite(path, names)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("changing the hosts file of pod %q: %w", podspec.FullName(m.pod), err))
			continue
		}
		written[m.pod.UID] = writtenFile{names, info}
	}
	k.sections, k.written = sections, written
	return errors.Join(errs...)
}

// rewriter changes hosts files, one after another.
type rewriter struct {
	old  bytes.Buffer
	next []byte
}

// rewrite changes the names in a hosts file. It is not replaced, since it is mounted in running containers.
func (r *rewriter) rewrite(path string, names *section) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	r.old.Reset()
	_, err = r.old.ReadFrom(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	r.next = names.in(r.next[:0], r.old.Bytes())
	if bytes.Equal(r.old.Bytes(), r.next) {
		return nil
	}
	return atomicfile.Overwrite(path, r.next, 0o644)
}
