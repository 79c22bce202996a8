package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// dependency is what a pod waits for: another one of the round, which is before it.
type dependency struct {
	on        int
	condition string
	service   bool // by the name of the Service that selects it
}

// appLabel is the label by which a Service selects its pod.
const appLabel = "app"

// addServices gives some of the pods a Service, of any kind.
func (r *round) addServices() {
	for _, p := range r.pods {
		if r.IntN(2) == 0 {
			continue
		}
		metav1.SetMetaDataLabel(&p.ObjectMeta, appLabel, p.Name)
		svc := &v1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: serviceOf(p)},
			Spec: v1.ServiceSpec{
				Selector: map[string]string{appLabel: p.Name}, PublishNotReadyAddresses: r.IntN(3) == 0,
				Ports: []v1.ServicePort{{Name: "tcp", Port: 80}, {Name: "udp", Port: 53, Protocol: v1.ProtocolUDP}},
			},
		}
		switch r.IntN(4) {
		case 0:
			svc.Spec.ClusterIP = v1.ClusterIPNone
		case 1:
			svc.Spec.Type = v1.ServiceTypeNodePort
		case 2:
			svc.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		}
		r.services = append(r.services, svc)
	}
}

func serviceOf(p *v1.Pod) string { return "service-" + p.Name }

// hasService returns whether the pod has a Service.
func (r *round) hasService(p *v1.Pod) bool {
	return slices.ContainsFunc(r.services, func(s *v1.Service) bool { return s.Name == serviceOf(p) })
}

// writeServices writes the manifests of the Services, each beside that of its pod.
func (r *round) writeServices() error {
	for n, p := range r.pods {
		i := slices.IndexFunc(r.services, func(s *v1.Service) bool { return s.Name == serviceOf(p) })
		if i < 0 {
			continue
		}
		if err := r.writeObject(n, r.services[i].Name, r.services[i]); err != nil {
			return err
		}
	}
	return nil
}

// addOrder has pods depend on pods before them in the same input that do not fail by themselves.
func (r *round) addOrder() {
	r.order = make([][]dependency, len(r.pods))
	for n, p := range r.pods {
		var said []string
		for m := n - len(r.dirs); m >= 0; m -= len(r.dirs) {
			on := r.pods[m]
			if fails(on) || r.IntN(2) == 0 {
				continue
			}
			d := dependency{on: m, condition: []string{"running", "ready", "completed"}[r.IntN(3)], service: r.hasService(on) && r.IntN(2) == 0}
			if d.condition == "completed" && on.Spec.RestartPolicy == v1.RestartPolicyAlways {
				d.condition = "ready"
			}
			name := on.Name
			if d.service {
				name = serviceOf(on)
			}
			said, r.order[n] = append(said, name+":"+d.condition), append(r.order[n], d)
			r.prove(on)
		}
		if len(said) > 0 {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, podspec.AnnotationDependsOn, strings.Join(said, ", "))
		}
	}
}

// prove makes containers that are ready have written into their ledgers before.
func (r *round) prove(p *v1.Pod) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.ReadinessProbe = &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/box", "cat", c.Args[1]}}},
			PeriodSeconds: 1, TimeoutSeconds: 30,
		}
	}
}

func (r *round) describeOrder(n int) string {
	text := ""
	if r.hasService(r.pods[n]) {
		text = "+service"
	}
	if said := r.pods[n].Annotations[podspec.AnnotationDependsOn]; said != "" {
		text += "[" + said + "]"
	}
	return text
}

// verifyOrder checks that the pod was not started before what it depends on had reached its condition. The first
// instances count: what a fault ends later starts again, and its dependents do not.
func (r *round) verifyOrder(n int) error {
	if r.order == nil || len(r.order[n]) == 0 {
		return nil
	}
	p := r.pods[n]
	var first int64
	for _, name := range containers(p) {
		all, err := readLedger(ledgerOf(r.ledgers, p, name))
		if err != nil {
			return err
		}
		if len(all) > 0 && (first == 0 || all[0].start < first) {
			first = all[0].start
		}
	}
	if first == 0 {
		return nil // it was not started
	}
	for _, d := range r.order[n] {
		if err := r.verifyDependency(r.pods[d.on], d.condition, first); err != nil {
			return fmt.Errorf("pod %s was started before %s was %s: %w", p.Name, r.pods[d.on].Name, d.condition, err)
		}
	}
	return nil
}

// verifyDependency checks that a pod had reached the condition at that time. A container that runs may not have
// written its start yet: that it has been started is all that is known.
func (r *round) verifyDependency(p *v1.Pod, condition string, at int64) error {
	for _, c := range p.Spec.Containers {
		all, err := readLedger(ledgerOf(r.ledgers, p, c.Name))
		if err != nil {
			return err
		}
		reached := slices.ContainsFunc(all, func(i instance) bool {
			switch condition {
			case "completed":
				return i.ended && i.code == 0 && !i.stopped && i.end < at
			case "ready":
				return i.start < at
			}
			return true
		})
		if !reached {
			return fmt.Errorf("the other one started at %d, the ledger of %s is %+v", at, c.Name, all)
		}
	}
	return nil
}

// isCanceled tells whether a pod may be canceled as it is: because of one that was killed.
func (r *round) isCanceled(p *v1.Pod, res row) bool {
	n := slices.Index(r.pods, p)
	return res.Outcome == "Canceled" && res.Reason == "DependencyFailed" && r.order != nil &&
		slices.ContainsFunc(r.order[n], func(d dependency) bool { return r.mayFail(d.on) })
}

func (r *round) mayFail(n int) bool {
	return r.killed[""] || r.killed[r.pods[n].Name] || slices.ContainsFunc(r.order[n], func(d dependency) bool { return r.mayFail(d.on) })
}

// verifyNames checks that the hosts file of a pod that runs has the names of all Services with addresses of their own.
func (r *round) verifyNames(n int, all []row) error {
	p := r.pods[n]
	res, err := find(all, p.Name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(res.Containers, func(c container) bool { return c.State == "Running" }) {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(r.dir, "logs", "default_"+p.Name+"_*"))
	if err != nil || len(dirs) != 1 {
		return err // several versions of it have run
	}
	_, uid, _ := strings.Cut(filepath.Base(dirs[0]), "_"+p.Name+"_")
	hosts, err := os.ReadFile(filepath.Join(r.dir, "root", "pods", uid, "etc-hosts"))
	if err != nil {
		return err
	}
	for _, svc := range r.services {
		if known := strings.Contains(string(hosts), "\t"+svc.Name+"\n"); !known && svc.Spec.ClusterIP != v1.ClusterIPNone {
			return fmt.Errorf("pod %s does not know the Service %s: %s", p.Name, svc.Name, hosts)
		}
	}
	return nil
}
