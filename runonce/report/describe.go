package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
)

// Description is what is known of a pod, for people.
type Description struct {
	PodState
	// Usage is what it uses now, nil if that is not known.
	Usage *podusage.Pod
	// Digests are those of the images that its containers were made from, by the names of the containers, as far as
	// the status does not have them.
	Digests map[string]string
	// Services are those that choose it.
	Services []*v1.Service
	// ServiceAccount says that it runs as its service account.
	ServiceAccount bool
}

// Remains are what is known of a pod that does not exist any more, or was never started.
type Remains struct {
	Namespace, Name, UID string
	Started              bool              // it was started once
	Changed              time.Time         // when it was last started, or removed
	Logs                 map[string]string // the newest one of each container
	Events               []podevent.Event
}

// hiddenAnnotations are not shown: they are long, or the description says the same in other places.
var hiddenAnnotations = []string{
	v1.LastAppliedConfigAnnotation, podspec.AnnotationSource, podspec.AnnotationPath, podspec.AnnotationDependsOn,
	podspec.AnnotationGroups, podspec.AnnotationOptional, podspec.AnnotationNode,
}

// maxAnnotation limits an annotation, in bytes (k8s.io/kubectl/pkg/describe maxAnnotationLen).
const maxAnnotation = 140

// Text writes the description with ages at now. Its sections, and the words for them, are those of "kubectl describe
// pod" (k8s.io/kubectl/pkg/describe), as far as that has them.
func (d Description) Text(w io.Writer, now time.Time) error {
	s := newSections(w)
	s.identity(&d)
	s.state(&d, now)
	s.addresses(&d)
	s.resources(0, d.Pod.Spec.Resources)
	st, spec := d.Pod.Status, d.Pod.Spec
	if len(spec.InitContainers) > 0 {
		s.containers("Init Containers", spec.InitContainers, st.InitContainerStatuses, &d)
	}
	s.containers("Containers", spec.Containers, st.ContainerStatuses, &d)
	if len(spec.EphemeralContainers) > 0 {
		all := make([]v1.Container, 0, len(spec.EphemeralContainers))
		for _, c := range spec.EphemeralContainers {
			all = append(all, v1.Container(c.EphemeralContainerCommon))
		}
		s.containers("Ephemeral Containers", all, st.EphemeralContainerStatuses, &d)
	}
	s.conditions(d.Pod)
	s.volumes(spec.Volumes)
	s.services(&d)
	s.placement(d.Pod)
	s.events(d.Events, now)
	return s.flush()
}

// Text writes the remains with ages at now.
func (r Remains) Text(w io.Writer, now time.Time) error {
	s := newSections(w)
	s.line(0, "Name:", r.Name)
	s.line(0, "Namespace:", r.Namespace)
	s.line(0, "UID:", r.UID)
	if r.Started {
		s.line(0, "Status:", "Removed")
		s.line(0, "Last Change:", timeText(r.Changed))
	} else {
		s.line(0, "Status:", phaseNotStarted)
	}
	if len(r.Logs) > 0 {
		s.line(0, "Logs:")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Logs)) {
		s.line(1, name+":", r.Logs[name])
	}
	s.events(r.Events, now)
	return s.flush()
}

// sections writes lines in columns, which are those of lines that follow each other.
type sections struct {
	t   *tabwriter.Writer
	err error
}

func newSections(w io.Writer) *sections {
	return &sections{t: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} // as kubectl has it
}

func (s *sections) flush() error { return cmp.Or(s.err, s.t.Flush()) }

// newColumns begins columns that are not those of the lines before.
func (s *sections) newColumns() { s.err = cmp.Or(s.err, s.t.Flush()) }

// line writes a line with these cells, whatever is in them.
func (s *sections) line(level int, cells ...string) {
	text := make([]string, 0, len(cells))
	for _, c := range cells {
		text = append(text, Printable(c))
	}
	_, err := fmt.Fprintln(s.t, strings.Repeat("  ", level)+strings.TrimRight(strings.Join(text, "\t"), "\t"))
	s.err = cmp.Or(s.err, err)
}

// optional writes a line if there is a value.
func (s *sections) optional(level int, key, value string) {
	if value != "" {
		s.lines(level, key, strings.Split(strings.TrimRight(value, "\n"), "\n")...)
	}
}

// lines writes a key with several values below each other.
func (s *sections) lines(level int, key string, values ...string) {
	if len(values) == 0 {
		values = []string{none}
	}
	for _, v := range values {
		s.line(level, key, v)
		key = ""
	}
}

// none stands for what is not there.
const none = "<none>"

func timeText(t time.Time) string { return t.Format(time.RFC1123Z) }

func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// identity says which pod it is, where it runs and where it is from.
func (s *sections) identity(d *Description) {
	pod := d.Pod
	s.line(0, "Name:", pod.Name)
	s.line(0, "Namespace:", pod.Namespace)
	s.line(0, "UID:", string(pod.UID))
	if pod.Spec.Priority != nil {
		s.line(0, "Priority:", strconv.Itoa(int(*pod.Spec.Priority)))
	}
	s.optional(0, "Priority Class Name:", pod.Spec.PriorityClassName)
	if class := pod.Spec.RuntimeClassName; class != nil {
		s.optional(0, "Runtime Class Name:", *class)
	}
	if d.ServiceAccount {
		s.optional(0, "Service Account:", pod.Spec.ServiceAccountName)
	}
	s.line(0, "Node:", nodeText(d))
	if pod.Status.StartTime != nil {
		s.line(0, "Start Time:", timeText(pod.Status.StartTime.Time))
	}
	s.lines(0, "Labels:", pairs(pod.Labels)...)
	s.annotations(pod.Annotations)
	s.optional(0, "Manifest:", manifestText(pod.Annotations))
	if list, _ := podspec.ParseDependencies(pod.Annotations[podspec.AnnotationDependsOn], pod.Namespace); len(list) > 0 {
		all := make([]string, 0, len(list))
		for _, on := range list {
			all = append(all, fmt.Sprintf("%s (%s)", strings.TrimPrefix(on.Namespace+"/"+on.Name, pod.Namespace+"/"), on.Condition))
		}
		s.lines(0, "Depends On:", all...)
	}
	if podspec.IsOptional(pod) {
		s.line(0, "Optional:", truth(true))
	}
}

// nodeText is the node with its address, as far as they are known.
func nodeText(d *Description) string {
	switch name := cmp.Or(d.Node, d.Pod.Spec.NodeName); {
	case name == "" && d.Pod.Status.HostIP == "":
		return none
	case name == "":
		return d.Pod.Status.HostIP
	default:
		return name + "/" + d.Pod.Status.HostIP
	}
}

// manifestText says where the pod was read from: the file and the line, by its whole path if that is known.
func manifestText(annotations map[string]string) string {
	source, path := annotations[podspec.AnnotationSource], annotations[podspec.AnnotationPath]
	line := source[strings.LastIndex(source, ":")+1:]
	if _, err := strconv.Atoi(line); err != nil || path == "" || path == "-" {
		return source
	}
	return path + ":" + line
}

// pairs are KEY=VALUE in the order of the keys.
func pairs(m map[string]string) []string {
	all := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+"="+m[key])
	}
	return all
}

func (s *sections) annotations(m map[string]string) {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := strings.TrimSuffix(m[key], "\n")
		switch {
		case slices.Contains(hiddenAnnotations, key):
		case len(key)+len(value)+2 > maxAnnotation || strings.Contains(value, "\n"):
			all = append(all, key+":")
			for line := range strings.SplitSeq(value, "\n") {
				all = append(all, "  "+shorten(line, maxAnnotation-2))
			}
		default:
			all = append(all, key+": "+value)
		}
	}
	s.lines(0, "Annotations:", all...)
}

// shorten cuts a text that is longer than n characters.
func shorten(text string, n int) string {
	if all := []rune(text); len(all) > n {
		return string(all[:n]) + "..."
	}
	return text
}

// state says how the pod is, and what the last run has decided about it.
func (s *sections) state(d *Description, now time.Time) {
	p := newPod(d.PodState)
	st := d.Pod.Status
	if deleted := d.Pod.DeletionTimestamp; deleted != nil && !podspec.Ended(st.Phase) {
		s.line(0, "Status:", "Terminating (lasts "+duration.HumanDuration(max(0, now.Sub(deleted.Time)))+")")
		if grace := d.Pod.DeletionGracePeriodSeconds; grace != nil {
			s.line(0, "Termination Grace Period:", fmt.Sprintf("%ds", *grace))
		}
	} else {
		s.line(0, "Status:", p.phase())
	}
	s.optional(0, "Reason:", st.Reason)
	s.optional(0, "Message:", st.Message)
	if d.Outcome != "" {
		s.optional(0, "Outcome:", p.decision(now))
	}
	if sc := d.Pod.Spec.SecurityContext; sc != nil {
		s.seccomp(0, sc.SeccompProfile)
	}
}

// seccomp names a profile, nil for none.
func (s *sections) seccomp(level int, p *v1.SeccompProfile) {
	if p == nil {
		return
	}
	s.line(level, "SeccompProfile:", string(p.Type))
	if p.LocalhostProfile != nil {
		s.line(level, "LocalhostProfile:", *p.LocalhostProfile)
	}
}

// addresses are those of the pod, and who controls it.
func (s *sections) addresses(d *Description) {
	pod := d.Pod
	s.line(0, "IP:", pod.Status.PodIP)
	if len(pod.Status.PodIPs) == 0 {
		s.line(0, "IPs:", none)
	} else {
		s.line(0, "IPs:")
	}
	for _, ip := range pod.Status.PodIPs {
		s.line(1, "IP:", ip.IP)
	}
	if pod.Spec.HostNetwork {
		s.line(0, "Host Network:", truth(true))
	}
	if by := metav1.GetControllerOf(pod); by != nil {
		s.line(0, "Controlled By:", by.Kind+"/"+by.Name)
	}
	s.optional(0, "NominatedNodeName:", pod.Status.NominatedNodeName)
}

// resources are the limits and requests of a container or a pod.
func (s *sections) resources(level int, r *v1.ResourceRequirements) {
	if r == nil {
		return
	}
	for _, list := range []struct {
		title string
		of    v1.ResourceList
	}{{"Limits:", r.Limits}, {"Requests:", r.Requests}} {
		if len(list.of) == 0 {
			continue
		}
		s.line(level, list.title)
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			q := list.of[name]
			s.line(level+1, string(name)+":", q.String())
		}
	}
}

func (s *sections) conditions(pod *v1.Pod) {
	if gates := pod.Spec.ReadinessGates; len(gates) > 0 {
		s.line(0, "Readiness Gates:")
		s.line(1, "Type", "Status")
		for _, g := range gates {
			s.line(1, string(g.ConditionType), cmp.Or(string(podspec.Condition(pod.Status, g.ConditionType).Status), none))
		}
	}
	if len(pod.Status.Conditions) == 0 {
		return
	}
	s.line(0, "Conditions:")
	s.line(1, "Type", "Status", "Reason", "Message")
	for _, c := range pod.Status.Conditions {
		s.line(1, string(c.Type), string(c.Status), c.Reason, c.Message)
	}
}

// services are those that choose the pod, with the ports that lead to it.
func (s *sections) services(d *Description) {
	if len(d.Services) == 0 {
		s.line(0, "Services:", none)
		return
	}
	s.line(0, "Services:")
	s.line(1, "Name", "Type", "Cluster IP", "Ports")
	for _, svc := range d.Services {
		var ports []string
		for _, p := range svc.Spec.Ports {
			text := fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, v1.ProtocolTCP))
			if p.NodePort != 0 {
				text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, cmp.Or(p.Protocol, v1.ProtocolTCP))
			}
			if target, ok := podspec.TargetPort(p, d.Pod); ok {
				text += fmt.Sprintf(" -> %d", target)
			}
			ports = append(ports, text)
		}
		ips := svc.Spec.ClusterIPs
		if len(ips) == 0 {
			ips = []string{cmp.Or(svc.Spec.ClusterIP, none)}
		}
		s.line(1, svc.Name, string(cmp.Or(svc.Spec.Type, v1.ServiceTypeClusterIP)), strings.Join(ips, ","), cmp.Or(strings.Join(ports, ", "), none))
	}
	s.newColumns()
}

// placement says on which nodes the pod may run.
func (s *sections) placement(pod *v1.Pod) {
	s.line(0, "QoS Class:", string(cmp.Or(pod.Status.QOSClass, podspec.QOS(pod))))
	s.lines(0, "Node-Selectors:", pairs(pod.Spec.NodeSelector)...)
	tolerations := make([]string, 0, len(pod.Spec.Tolerations))
	for _, t := range slices.SortedStableFunc(slices.Values(pod.Spec.Tolerations), func(a, b v1.Toleration) int { return cmp.Compare(a.Key, b.Key) }) {
		tolerations = append(tolerations, tolerationText(t))
	}
	s.lines(0, "Tolerations:", tolerations...)
	all := make([]string, 0, len(pod.Spec.TopologySpreadConstraints))
	for _, c := range pod.Spec.TopologySpreadConstraints {
		text := fmt.Sprintf("%s:%s when max skew %d is exceeded", c.TopologyKey, c.WhenUnsatisfiable, c.MaxSkew)
		if c.LabelSelector != nil {
			text += " for selector " + metav1.FormatLabelSelector(c.LabelSelector)
		}
		all = append(all, text)
	}
	if len(all) > 0 {
		s.lines(0, "Topology Spread Constraints:", all...)
	}
}

func tolerationText(t v1.Toleration) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.Operator == v1.TolerationOpExists && t.Value == "" {
		text = join(" ", text, "op=Exists")
	}
	if t.TolerationSeconds != nil {
		text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return text
}

// events are in the columns of kubectl.
func (s *sections) events(all []podevent.Event, now time.Time) {
	if len(all) == 0 {
		s.line(0, "Events:", none)
		return
	}
	s.newColumns()
	s.line(0, "Events:")
	s.line(1, "Type", "Reason", "Age", "From", "Message")
	s.line(1, "----", "------", "----", "----", "-------")
	for _, e := range all {
		one := Event{Event: e}
		message := e.Message
		if e.Container != "" {
			message = "container " + e.Container + ": " + message
		}
		s.line(1, e.Type, e.Reason, one.seen(now), cmp.Or(e.Source, "runonce"), message)
	}
}
