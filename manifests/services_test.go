package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// serviceDoc returns a Service, of which spec are the lines from its fifth.
func serviceDoc(name, spec string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec:\n" + spec + "---\n"
}

// labelled returns a pod with labels, and a container with these fields.
func labelled(name, labels, container string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", labels: {" + labels + "}}\nspec: {containers: [{name: c, image: i, " + container + "}]}\n---\n"
}

func TestServices(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", serviceDoc("web", "  type: NodePort\n  selector: {app: web}\n  externalIPs: [192.0.2.7]\n  internalTrafficPolicy: Local\n  publishNotReadyAddresses: true\n"+
		"  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}\n"+
		"  ports: [{name: http, port: 80, targetPort: http}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}, {name: sig, port: 99, protocol: SCTP, targetPort: 9}]\n")+
		serviceDoc("peers", "  clusterIP: None\n  selector: {app: web}\n")+
		serviceDoc("outside", "  type: ExternalName\n  externalName: db.example.com\n")+
		serviceDoc("both", "  selector: {app: web}\n  clusterIP: 10.0.0.9\n  clusterIPs: [10.0.0.9, 'fd00::9']\n  ipFamilyPolicy: RequireDualStack\n  ports: [{port: 1}]\n")+
		strings.Replace(serviceDoc("web", "  selector: {app: x}\n  ports: [{port: 1}]\n"), "name: web", "name: web, namespace: a", 1)+
		labelled("a", "app: web", "ports: [{name: http, containerPort: 8080}]")+
		strings.Replace(labelled("b", "app: x", ""), "name: b", "name: b, namespace: a", 1))
	if w := set.Warnings; len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	var names []string
	got := map[string]*v1.Service{}
	for _, s := range set.Services() {
		names = append(names, podspec.ShortName(podspec.NameOf(&v1.Pod{ObjectMeta: s.ObjectMeta})))
		got[names[len(names)-1]] = s
	}
	if d := cmp.Diff([]string{"a/web", "both", "outside", "peers", "web"}, names); d != "" {
		t.Fatal(d)
	}
	web := got["web"].Spec
	if web.Ports[0].TargetPort.StrVal != "http" || web.Ports[0].Protocol != v1.ProtocolTCP || web.Ports[1].TargetPort.IntVal != 53 || web.Ports[1].NodePort != 30053 ||
		web.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyCluster || *web.SessionAffinityConfig.ClientIP.TimeoutSeconds != 60 ||
		*web.IPFamilyPolicy != v1.IPFamilyPolicySingleStack || len(web.IPFamilies) > 0 || web.ClusterIP != "" || !web.PublishNotReadyAddresses {
		t.Errorf("web: %+v", web)
	}
	if s := got["both"].Spec; len(s.IPFamilies) != 2 || s.IPFamilies[1] != v1.IPv6Protocol || s.ClusterIP != "10.0.0.9" {
		t.Errorf("both: %+v", s)
	}
	if s := got["peers"].Spec; s.ClusterIPs[0] != v1.ClusterIPNone || len(s.IPFamilies) > 0 {
		t.Errorf("peers: %+v", s)
	}
	if s := got["outside"]; s.Spec.ExternalName != "db.example.com" || s.Spec.IPFamilyPolicy != nil || s.Annotations[podspec.AnnotationSource] != "f:21" {
		t.Errorf("outside: %+v", s)
	}
}

// TestExportedService: what an API server has assigned has no effect, but for addresses and node ports.
func TestExportedService(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", strings.Replace(serviceDoc("web", "  type: LoadBalancer\n  externalTrafficPolicy: Local\n  selector: {app: web}\n  clusterIP: 10.0.0.1\n  clusterIPs: [10.0.0.1]\n  healthCheckNodePort: 30999\n"+
		"  allocateLoadBalancerNodePorts: true\n  ports: [{port: 80, nodePort: 30080, protocol: TCP, targetPort: 80}]\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n"),
		"name: web", "name: web, uid: x, resourceVersion: '5', creationTimestamp: '2026-01-02T03:04:05Z'", 1)+labelled("a", "app: web", ""))
	want := []string{
		"f:3: metadata.creationTimestamp: ignored: there is no API server here to assign or use it",
		"f:3: metadata.resourceVersion: ignored: there is no API server here to assign or use it",
		"f:3: metadata.uid: ignored: the UID comes from the content of the manifest",
		"f:5: spec.type: there is no load balancer here: the Service can be reached at its cluster IP, its node ports and its external IPs",
		"f:10: spec.healthCheckNodePort: ignored: there is no load balancer here",
		"f:13: status: ignored: runonce finds out the status itself",
	}
	if d := cmp.Diff(want, lines(set.Warnings.Err())); d != "" {
		t.Error(d)
	}
	s := set.Services()[0]
	if s.UID != "" || len(s.Status.LoadBalancer.Ingress) > 0 || s.Spec.ClusterIPs[0] != "10.0.0.1" || s.Spec.Ports[0].NodePort != 30080 || !s.CreationTimestamp.IsZero() {
		t.Errorf("%+v", s)
	}
}

func TestBadServices(t *testing.T) {
	t.Parallel()
	const ports = "  ports: [{port: 80}]\n"
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"unknown field", serviceDoc("s", "  port: 80\n"), []string{
			"f:5: spec.port: unknown field (did you mean ports?)",
		}},
		{"Kubernetes' rules", serviceDoc("S", "  type: Nodeport\n  ports: [{port: 0}, {port: 1, protocol: tcp}]\n"), []string{
			`f:3: metadata.name: Invalid value: "S": a lowercase RFC 1123 label must consist of`,
			`f:5: spec.type: Unsupported value: "Nodeport": supported values: `,
			`f:6: spec.ports[0].name: Required value`,
			`f:6: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`,
			`f:6: spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive`,
			`f:6: spec.ports[1].name: Required value`,
			`f:6: spec.ports[1].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP" (did you mean TCP?)`,
		}},
		{"an annotation of pods", strings.Replace(serviceDoc("s", ports), "name: s", "name: s, annotations: {runonce/depends-on: db}", 1), []string{
			"f:3: metadata.annotations[runonce/depends-on]: has no effect on the pods of a Service (move it to the pods)",
		}},
		{"node port that is none", serviceDoc("s", "  type: NodePort\n  ports: [{port: 80, nodePort: 70000}]\n"), []string{
			"f:6: spec.ports[0].nodePort: Invalid value: 70000: must be between 1 and 65535, inclusive",
		}},
		{"two addresses and one family", serviceDoc("s", "  clusterIP: 10.0.0.1\n  clusterIPs: [10.0.0.1, 'fd00::1']\n"+ports), []string{
			`f:4: spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified`,
		}},
		{"source ranges without a load balancer", serviceDoc("s", ports+"  loadBalancerSourceRanges: [x]\n"), []string{
			"f:6: spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
			`f:6: spec.loadBalancerSourceRanges[0]: Invalid value: "x": must be a valid CIDR value`,
		}},
		{"headless node port", serviceDoc("s", "  clusterIP: None\n  type: NodePort\n"+ports), []string{
			`f:4: spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`,
		}},
		{
			"two with the same cluster IP", serviceDoc("a", "  clusterIP: 'fd00::1'\n"+ports) + serviceDoc("b", "  clusterIP: 'fd00:0::1'\n"+ports),
			[]string{`f:12: spec.clusterIP: Service "a" at f:1 has the cluster IP fd00::1 (choose another one, or leave it out to get a free one)`},
		},
		{
			"two with the same node port", serviceDoc("a", "  type: NodePort\n  ports: [{port: 80, nodePort: 30080}]\n") +
				serviceDoc("b", "  type: LoadBalancer\n  ports: [{name: u, port: 81, nodePort: 30080, protocol: UDP}, {name: t, port: 81, nodePort: 30080}]\n"),
			[]string{`f:13: spec.ports[1].nodePort: Service "a" at f:1 has the node port 30080/TCP (choose another one, or leave it out to get a free one)`},
		},
		{
			"two with the same external IP", serviceDoc("a", "  externalIPs: [192.0.2.1]\n"+ports) + serviceDoc("b", "  externalIPs: [192.0.2.2, 192.0.2.1]\n"+ports) + serviceDoc("c", "  externalIPs: [192.0.2.1]\n  ports: [{port: 81}]\n"),
			[]string{`f:12: spec.externalIPs[1]: Service "a" at f:1 has the port 80/TCP of the external IP 192.0.2.1 (choose another address or port)`},
		},
		{"two of one name", serviceDoc("a", ports) + serviceDoc("a", ports), []string{`f:9: metadata.name: Service "default/a" is already defined at f:1 (rename or remove one)`}},
		{"EndpointSlice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\n", []string{
			"f:2: kind: EndpointSlice is not supported: the endpoints of a Service are the pods that its selector matches (give the Service a selector, or the type ExternalName if it is about something outside)",
		}},
		{"Endpoints", "apiVersion: v1\nkind: Endpoints\nmetadata: {name: s}\n", []string{
			"f:2: kind: Endpoints is not supported: the endpoints of a Service are the pods that its selector matches (give the Service a selector, or the type ExternalName if it is about something outside)",
		}},
		{"Ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: s}\n---\napiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: s}\n", []string{
			"f:2: kind: Ingress is not supported: nothing here serves HTTP for pods (publish the pod with a Service of type NodePort, or with a hostPort)",
			"f:6: kind: Ingress is not supported: nothing here serves HTTP for pods (publish the pod with a Service of type NodePort, or with a hostPort)",
		}},
		{"of Knative", "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: s}\n", []string{
			"f:2: kind: unknown kind Service in serving.knative.dev/v1 (a custom resource is ignored if its CustomResourceDefinition is in the input)",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir("f", tt.in))
			got := lines(err)
			if len(got) != len(tt.want) {
				t.Fatalf("errors:\n%s", strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("%s\nwant %s", got[i], tt.want[i])
				}
			}
			for _, s := range set.Services() {
				if s.Name != "a" && s.Name != "c" {
					t.Errorf("the set has %s", s.Name)
				}
			}
		})
	}
}

func TestServiceWarnings(t *testing.T) {
	t.Parallel()
	const ports = "  ports: [{port: 80}]\n"
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"without an effect", serviceDoc("s", "  type: LoadBalancer\n  selector: {app: web}\n  loadBalancerIP: 192.0.2.1\n  loadBalancerClass: example.com/x\n  loadBalancerSourceRanges: [192.0.2.0/24]\n"+
			"  allocateLoadBalancerNodePorts: false\n  trafficDistribution: PreferClose\n"+ports) + labelled("p", "app: web", ""), []string{
			"f:5: spec.type: there is no load balancer here: the Service can be reached at its cluster IP, its node ports and its external IPs",
			"f:7: spec.loadBalancerIP: ignored: there is no load balancer here",
			"f:8: spec.loadBalancerClass: ignored: there is no load balancer here",
			"f:9: spec.loadBalancerSourceRanges: ignored: there is no load balancer here, and kube-proxy does not limit the other addresses either",
			"f:11: spec.trafficDistribution: ignored: all endpoints are on this node",
		}},
		{"without an effect in Kubernetes", serviceDoc("s", "  clusterIP: None\n  selector: {app: web}\n  sessionAffinity: ClientIP\n  externalIPs: [192.0.2.1]\n  externalName: x\n"+ports) + labelled("p", "app: web", ""), []string{
			"f:7: spec.sessionAffinity: is ignored for headless services",
			"f:8: spec.externalIPs: is ignored for headless services",
			`f:9: spec.externalName: is ignored when spec.type is not "ExternalName"`,
		}},
		{"without a selector", serviceDoc("s", ports) + serviceDoc("t", "  clusterIP: None\n  selector: {}\n"), []string{
			"f:4: spec.selector: without a selector, the Service has no endpoints here: connections are refused (select pods by their labels; a Service of type ExternalName is a name for something outside)",
			"f:12: spec.selector: without a selector, the Service has no endpoints here: its name has no addresses (select pods by their labels; a Service of type ExternalName is a name for something outside)",
		}},
		{"a value of a similar name", serviceDoc("s", "  selector: {app: wbe}\n"+ports) + labelled("p", "app: web", ""), []string{
			"f:5: spec.selector: no pod of the input has these labels: connections are refused until others do (did you mean app: web?)",
		}},
		{"a key of a similar name", serviceDoc("s", "  selector: {aap: web}\n"+ports) + labelled("p", "app: web", ""), []string{
			"f:5: spec.selector: no pod of the input has these labels: connections are refused until others do (did you mean app: web?)",
		}},
		{"nothing like it", serviceDoc("s", "  selector: {app: web, tier: front}\n"+ports) + labelled("p", "app: web", ""), []string{
			"f:5: spec.selector: no pod of the input has these labels: connections are refused until others do (no pod in namespace default has the label tier: front)",
		}},
		{"not together", serviceDoc("s", "  selector: {app: web, tier: front}\n"+ports) + labelled("p", "app: web", "") + labelled("q", "tier: front", ""), []string{
			"f:5: spec.selector: no pod of the input has these labels: connections are refused until others do (there is a pod for each of the labels, but none has all of them)",
		}},
		{"in another namespace", serviceDoc("s", "  selector: {app: web}\n"+ports) + strings.Replace(labelled("p", "app: web", ""), "name: p", "name: p, namespace: x", 1), []string{
			"f:5: spec.selector: no pod of the input has these labels: connections are refused until others do (there are such pods in namespace x, this Service is in default)",
		}},
		{"port of a similar name", serviceDoc("s", "  selector: {app: web}\n  ports: [{port: 80, targetPort: htp}]\n") + labelled("p", "app: web", "ports: [{name: http, containerPort: 80}]"), []string{
			`f:6: spec.ports[0].targetPort: no container of the selected pods has a TCP port named "htp": connections to them are refused (did you mean http?)`,
		}},
		{"port of another protocol", serviceDoc("s", "  selector: {app: web}\n  ports: [{port: 80, targetPort: dns}]\n") + labelled("p", "app: web", "ports: [{name: dns, containerPort: 53, protocol: UDP}]"), []string{
			`f:6: spec.ports[0].targetPort: no container of the selected pods has a TCP port named "dns": connections to them are refused (dns is a UDP port: set the protocol)`,
		}},
		{"port of none", serviceDoc("s", "  selector: {app: web}\n  ports: [{port: 80, targetPort: x}]\n") + labelled("p", "app: web", ""), []string{
			`f:6: spec.ports[0].targetPort: no container of the selected pods has a TCP port named "x": connections to them are refused (give a port of the container this name, or use the number)`,
		}},
		{"port of one of them", serviceDoc("s", "  selector: {app: web}\n  ports: [{port: 80, targetPort: x}]\n") + labelled("p", "app: web", "") + labelled("q", "app: web", "ports: [{name: x, containerPort: 5}]"), nil},
		{"port of a headless Service", serviceDoc("s", "  clusterIP: None\n  selector: {app: web}\n  ports: [{port: 80, targetPort: x}]\n") + labelled("p", "app: web", ""), nil},
		{"the pods of a workload", serviceDoc("s", "  selector: {app: x}\n"+ports) + strings.Replace(workloadDoc("apps/v1", "Deployment", "  selector: {matchLabels: {app: x}}\n  TEMPLATE\n"), ", namespace: ns", "", 1), nil},
		{"a name for something outside", serviceDoc("s", "  type: ExternalName\n  externalName: x\n"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := mustRead(t, "f", tt.in)
			if d := cmp.Diff(tt.want, lines(set.Warnings.Err())); d != "" {
				t.Error(d)
			}
		})
	}
}
