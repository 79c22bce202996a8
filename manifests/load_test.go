package manifests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatOnlyANodeKnows(t *testing.T) {
	t.Parallel()
	const conf = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: other}\ndata: {colour: red}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: here}\ndata: {colour: red}\n"
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"image", strings.Replace(pod("p"), "busybox:1", "BusyBox", 1), []string{
			`f:7: spec.containers[0].image: Invalid value: "BusyBox": invalid reference format: repository name (library/BusyBox) must be lowercase`,
		}},
		{"image with a scheme", strings.Replace(pod("p"), "busybox:1", "https://r/x", 1), []string{
			`f:7: spec.containers[0].image: Invalid value: "https://r/x": invalid reference format (leave out https://)`,
		}},
		{"image of a template", strings.Replace(pod("p"), "busybox:1", "'{{ .Image }}'", 1), []string{
			`f:7: spec.containers[0].image: Invalid value: "{{ .Image }}": invalid reference format: repository name (library/{{ .Image }}) must be lowercase (looks like an unrendered template: {{ }})`,
		}},
		{"typographic quotes", strings.Replace(pod("p"), "busybox:1", "“busybox”", 1), []string{
			`f:7: spec.containers[0].image: Invalid value: "“busybox”": invalid reference format (write plain quotes: ")`,
		}},
		{"NUL", pod("p") + "    args: [a, \"b\\0c\"]\n", []string{"f:8: spec.containers[0].args[1]: contains a NUL byte, which cannot be passed to a program"}},
		{"colon", pod("p", "  volumes: [{name: v}]\n") + "    volumeMounts: [{name: v, mountPath: '/a:b'}]\n", []string{
			"f:9: spec.containers[0].volumeMounts[0].mountPath: must not contain ':'",
		}},
		{"capability", pod("p") + "    securityContext: {capabilities: {add: [CAP_NET_ADMIN, sys_time, NET_ADMN], drop: [ALL]}}\n", []string{
			`f:8: spec.containers[0].securityContext.capabilities.add[2]: unknown capability "NET_ADMN" (did you mean NET_ADMIN?)`,
		}},
		{"map of another namespace", pod("p") + "    envFrom: [{configMapRef: {name: settings}}]\n" + conf, []string{
			`f:8: spec.containers[0].envFrom[0].configMapRef.name: ConfigMap "settings" is not in the input (there is one in namespace other, this pod is in default)`,
		}},
		{"map of a similar name", pod("p") + "    envFrom: [{configMapRef: {name: hear}}]\n" + conf, []string{
			`f:8: spec.containers[0].envFrom[0].configMapRef.name: ConfigMap "hear" is not in the input (did you mean here?)`,
		}},
		{"error of a limit, not of the request that it makes", pod("p") + "    resources: {limits: {gpu: 1}}\n", []string{
			`f:8: spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers`,
			`f:8: spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified`,
		}},
		{"size of a map", pod("p") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + strings.Repeat("x", 1<<20+1) + "}\n", []string{
			"f:9: Too long: may not be more than 1048576 bytes",
		}},
		{"key", pod("p") + "    env: [{name: A, valueFrom: {configMapKeyRef: {name: here, key: color}}}]\n" + conf, []string{
			`f:8: spec.containers[0].env[0].valueFrom.configMapKeyRef: ConfigMap "here" has no key "color" (did you mean colour?)`,
		}},
		{"key of a volume", pod("p", "  volumes: [{name: v, configMap: {name: here, items: [{key: x, path: x}]}}]\n") + conf, []string{
			`f:5: spec.volumes[0].configMap.items[0].key: ConfigMap "here" has no key "x"`,
		}},
		{"stop signal without an operating system", pod("p") + "    lifecycle: {stopSignal: SIGUSR1}\n", []string{
			"f:8: spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
		}},
		{"variable of a path", pod("p", "  volumes: [{name: v, emptyDir: {}}]\n") + "    env: [{name: UP, value: ../x}, {name: TOP, value: /x}, {name: NONE}, {name: SO, value: fine}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]\n" +
			"    volumeMounts:\n    - {name: v, mountPath: /a, subPathExpr: a/$(UP)}\n    - {name: v, mountPath: /b, subPathExpr: $(TOP)}\n" +
			"    - {name: v, mountPath: /c, subPathExpr: $(NONE)}\n    - {name: v, mountPath: /d, subPathExpr: $(NO)}\n    - {name: v, mountPath: /e, subPathExpr: $(SO)/$(IP)/$$(NO)}\n", []string{
			`f:11: spec.containers[0].volumeMounts[0].subPathExpr: expands to "a/../x", which must not contain '..'`,
			`f:12: spec.containers[0].volumeMounts[1].subPathExpr: expands to "/x", which must be a relative path`,
			`f:13: spec.containers[0].volumeMounts[2].subPathExpr: the variable "NONE" is empty`,
			`f:14: spec.containers[0].volumeMounts[3].subPathExpr: the container has no variable "NO" (did you mean SO?)`,
		}},
		{"variable that may come from a map", pod("p", "  volumes: [{name: v, emptyDir: {}}]\n") + "    envFrom: [{configMapRef: {name: here}}]\n    volumeMounts: [{name: v, mountPath: /a, subPathExpr: $(colour)}]\n" + conf, nil},
		{"comparison that is switched off", pod("p", "  tolerations: [{key: a, operator: Gt, value: '1'}]\n"), []string{
			`f:5: spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt" (Kubernetes disables it by default)`,
		}},
		{"relative host path", pod("p", "  volumes: [{name: v, hostPath: {path: data}}]\n"), []string{
			"f:5: spec.volumes[0].hostPath.path: must be an absolute path (begin it with /)",
		}},
		{"decimal mode", pod("p", "  volumes: [{name: v, configMap: {name: here, defaultMode: 644}}]\n") + conf, []string{
			"f:5: spec.volumes[0].configMap.defaultMode: Invalid value: 644: must be a number between 0 and 0777 (octal), both inclusive (modes are octal: write 0644)",
		}},
		{"volume of a similar name", pod("p", "  volumes: [{name: data}]\n") + "    volumeMounts: [{name: dta, mountPath: /d}]\n", []string{
			`f:9: spec.containers[0].volumeMounts[0].name: Not found: "dta": there is a volume "data"`,
		}},
		{"optional", pod("p") + "    envFrom: [{configMapRef: {name: nope, optional: true}}]\n", nil},
		{"reference to what is broken", pod("p") + "    envFrom: [{configMapRef: {name: b}}]\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {a: 1}\n", []string{
			`f:8: spec.containers[0].envFrom[0].configMapRef.name: ConfigMap "b" has errors`,
			`f:13: data[a]: got a number (1), want a string (quote it: "1")`,
		}},
		{"reference to what is invalid", pod("p") + "    envFrom: [{configMapRef: {name: b, optional: true}}]\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {../a: x}\n", []string{
			`f:8: spec.containers[0].envFrom[0].configMapRef.name: ConfigMap "b" has errors`,
			`f:13: data[../a]: Invalid value: "../a": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
			`f:13: data[../a]: Invalid value: "../a": must not start with '..'`,
		}},
		{"class that is invalid", pod("p", "  priorityClassName: x\n") + "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: x}\nvalue: 2000000000\n", []string{
			`f:5: spec.priorityClassName: PriorityClass "x" has errors`,
			"f:13: value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
		}},
		{"AppArmor of old", strings.Replace(pod("p"), "{name: p}", "{name: p, annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/x}}", 1), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(dir("f", tt.in))
			if d := cmp.Diff(tt.want, lines(err)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMemoryThatCannotWork: a limit that was meant to be higher is refused, one that is only low is not.
func TestMemoryThatCannotWork(t *testing.T) {
	t.Parallel()
	const tooLow = ": no container can start in less than 64Ki of memory (give it a unit: Mi is a mebibyte)"
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"no unit", pod("p") + "    resources: {limits: {memory: 128}}\n", []string{`f:8: spec.containers[0].resources.limits[memory]: Invalid value: "128"` + tooLow}},
		{"thousandths of a byte", pod("p") + "    resources: {limits: {memory: 512m}}\n", []string{
			`f:8: spec.containers[0].resources.limits[memory]: Invalid value: "512m": no container can start in less than 64Ki of memory (m is a thousandth of a byte; Mi is a mebibyte)`,
		}},
		{"init container", pod("p", "  initContainers: [{name: i, image: i, resources: {limits: {memory: 64}}}]\n"), []string{
			`f:5: spec.initContainers[0].resources.limits[memory]: Invalid value: "64"` + tooLow,
		}},
		{"pod", pod("p", "  resources: {limits: {memory: 64}}\n"), []string{`f:5: spec.resources.limits[memory]: Invalid value: "64"` + tooLow}},
		{"the least", pod("p") + "    resources: {limits: {memory: 64Ki}}\n", nil},
		{"with crun", pod("p") + "    resources: {limits: {memory: 256Ki}}\n", nil},
		{"no limit", pod("p") + "    resources: {limits: {memory: 0}}\n", nil},
		{"request", pod("p") + "    resources: {requests: {memory: 1}}\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(dir("f", tt.in))
			if d := cmp.Diff(tt.want, lines(err)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"none", pod("p"), nil},
		{"meaningless", pod("p", "  serviceAccountName: x\n  enableServiceLinks: true\n"), []string{
			"f:5: spec.serviceAccountName: \"x\" is ignored: there is no API server here to assign or use it",
		}},
		{"once for all containers", pod("p") + "    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]\n  - {name: d, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}\n", []string{
			"f:8: spec.containers[0].resizePolicy: ignored: nothing resizes a pod here",
		}},
		{"thousandths of a byte", pod("p") + "    resources: {requests: {memory: 512m}}\n", []string{
			`f:8: spec.containers[0].resources.requests[memory]: fractional byte value "512m" is invalid, must be an integer (m is a thousandth of a byte; Mi is a mebibyte)`,
		}},
		{"thousandths of a byte, once", pod("p") + "    resources: {limits: {memory: 200000001m}}\n", []string{
			`f:8: spec.containers[0].resources.limits[memory]: fractional byte value "200000001m" is invalid, must be an integer (m is a thousandth of a byte; Mi is a mebibyte)`,
		}},
		{"port that is not there", pod("p") + "    ports: [{containerPort: 80, name: http}]\n    livenessProbe: {httpGet: {port: htp}}\n    readinessProbe: {tcpSocket: {port: http}}\n    lifecycle: {preStop: {httpGet: {port: halt}}}\n", []string{
			`f:9: spec.containers[0].livenessProbe.httpGet.port: the container has no port named "htp" (did you mean http?)`,
			`f:11: spec.containers[0].lifecycle.preStop.httpGet.port: the container has no port named "halt" (give one of its ports this name, or use the number)`,
		}},
		{
			"pull secrets", pod("p", "  imagePullSecrets: [{name: login}, {name: other}, {name: old}, {name: gone}]\n") +
				"---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{}'}\n" +
				"---\napiVersion: v1\nkind: Secret\nmetadata: {name: old}\ntype: kubernetes.io/dockercfg\nstringData: {.dockercfg: '{}'}\n" +
				"---\napiVersion: v1\nkind: Secret\nmetadata: {name: other}\n",
			[]string{
				`f:5: spec.imagePullSecrets[1].name: Secret "other" is of type Opaque, which has no registry credentials (use type kubernetes.io/dockerconfigjson)`,
				`f:5: spec.imagePullSecrets[3].name: Secret "gone" is not in the input: images are pulled without it (add it to the input)`,
			},
		},
		{"another node", pod("p", "  nodeName: there\n") + "---\napiVersion: v1\nkind: Node\nmetadata: {name: here}\n", []string{
			`f:5: spec.nodeName: is "there", but this node is "here": the pod will be rejected`,
		}},
		{"exported", strings.Replace(pod("p"), "{name: p}", "{name: p, uid: x, creationTimestamp: null}", 1) + "status: {phase: Running}\n", []string{
			`f:3: metadata.uid: ignored: the UID comes from the content of the manifest`,
			"f:8: status: ignored: runonce finds out the status itself",
		}},
		{"empty file", "# nothing\n", []string{"f: has no documents"}},
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

func TestUnknownDocuments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		file string
		in   string
		want string
	}{
		{"custom kind", "f", "apiVersion: example.com/v1\nkind: Widget\n", "f:2: kind: unknown kind Widget in example.com/v1"},
		{"custom kind like one of Kubernetes", "f", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n", "f:2: kind: unknown kind Workflow in argoproj.io/v1alpha1 (a custom resource is ignored if"},
		{"custom kind with the name of a supported one", "f", "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n", "f:2: kind: unknown kind Job in batch.volcano.sh/v1alpha1 (a custom resource is ignored if"},
		{"typed kustomization", "f", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", "f:2: kind: unknown kind Kustomization in kustomize.config.k8s.io/v1beta1 (this is a kustomization: kubectl kustomize . | runonce run -)"},
		{"configuration", "f", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "(this configures a component of Kubernetes: move it elsewhere)"},
		{"misspelled, of another group", "f", "apiVersion: v1\nkind: Deploymnt\n", "f:2: kind: unknown kind Deploymnt in v1 (did you mean Deployment?)"},
		{"kubeconfig", "f", "apiVersion: v1\nkind: Config\n", "f:2: kind: unknown kind Config in v1 (this is a kubeconfig file, not a manifest)"},
		{"comment before JSON", "f.json", "// a pod\n{\"kind\": \"Pod\"}\n", "(JSON has no comments)"},
		{"comment before a value", "f.json", "// a pod\n[]\n", "f.json:1: not an object (JSON has no comments)"},
		{"plural", "f", "apiVersion: v1\nkind: Pods\n", "f:2: kind: unknown kind Pods in v1 (did you mean Pod?)"},
		{"wrong version", "f", "apiVersion: v1beta1\nkind: Pod\n", "f:1: apiVersion: there is no kind Pod in v1beta1 (use apiVersion: v1)"},
		{
			"resource of a definition of the input", "f",
			"apiVersion: example.com/v1\nkind: Widget\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: example.com, names: {kind: Widget}}\n", "",
		},
		{
			"resource whose kind ends in List", "f",
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: example.com, names: {kind: AllowList}}\n---\napiVersion: example.com/v1\nkind: AllowList\nspec: {users: [a]}\n", "",
		},
		{"kustomization", "kustomization.yaml", "resources: [a]\n", "this is a kustomization: kubectl kustomize . | runonce run -"},
		{"compose", "f", "services: {web: {image: x}}\n", "this looks like a compose file, not a Kubernetes manifest"},
		{"values", "values.yaml", "image: {tag: x}\n", "this looks like Helm values: run helm template and use its output"},
		{"chart", "Chart.yaml", "apiVersion: v2\nname: x\nversion: '1'\n", "this is a Helm chart: helm template . | runonce run -"},
		{"kind that is no string", "f", "apiVersion: v1\nkind: 5\n", "f:2: kind: not a string"},
		{"skipped kinds", "f", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir(tt.file, tt.in))
			if tt.want == "" {
				if err != nil || len(set.Warnings) == 0 {
					t.Errorf("error %v, warnings %v", err, set.Warnings)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestRuntimeClassAndNodes(t *testing.T) {
	t.Parallel()
	class := "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: slim}\nhandler: runc\n"
	set := mustRead(t, "f", class)
	if c, ok := set.RuntimeClass("slim"); !ok || c.Handler != "runc" {
		t.Errorf("class: %v", c)
	}
	node := "---\napiVersion: v1\nkind: Node\nmetadata: {name: NAME}\n"
	_, err := Read(dir("f", strings.ReplaceAll(node, "NAME", "a")+strings.ReplaceAll(node, "NAME", "b")))
	if err == nil || err.Error() != `f:7: kind: a second Node; the first is "a" at f:2 (pods run on one node: keep one)` {
		t.Error(err)
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	in := pod("p", "  schedulingGates: [{name: g}]\n", "  serviceAccountName: x\n")
	set, err := Read(dir("f", in))
	v := NewValidation(set, err, false)
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"runonce/v1","kind":"Validation","faults":[` +
		`{"file":"f","document":1,"line":5,"field":"spec.schedulingGates","message":"not supported: nothing here removes a gate","severity":"error"},` +
		`{"file":"f","document":1,"line":6,"field":"spec.serviceAccountName","message":"\"x\" is ignored: there is no API server here to assign or use it","severity":"warning"}]}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	if n := len(lines(v.Err())); n != 1 {
		t.Errorf("%d errors, want 1", n)
	}
	set = mustRead(t, "f", pod("p", "  serviceAccountName: x\n"))
	if NewValidation(set, nil, false).Err() != nil || NewValidation(set, nil, true).Err() == nil {
		t.Error("strict has no effect")
	}
	if set.Warnings[0].Severity != SeverityWarning {
		t.Error("strict changed the set")
	}
}

func TestGenerateName(t *testing.T) {
	t.Parallel()
	in := strings.Replace(pod("p"), "{name: p}", "{generateName: job-}", 1)
	set := mustRead(t, "f", in+"---\n"+in)
	a, b := set.Pods[0], set.Pods[1]
	if !strings.HasPrefix(a.Name, "job-") || len(a.Name) != len("job-")+5 || a.Name == b.Name || a.GenerateName != "" {
		t.Errorf("names %q and %q", a.Name, b.Name)
	}
	if again := mustRead(t, "g", in).Pods[0]; again.Name != a.Name || again.UID != a.UID {
		t.Errorf("the same document is %s, then %s", a.Name, again.Name)
	}
	if other := mustRead(t, "f", strings.Replace(in, "busybox:1", "busybox:2", 1)).Pods[0]; other.Name == a.Name {
		t.Error("another document has the same name")
	}
	job := strings.Replace(workloadDoc("batch/v1", "Job", "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"), "name: w", "generateName: "+strings.Repeat("x", 70), 1)
	if name := mustRead(t, "f", job).Pods[0].Name; len(name) != 63+len("-0") {
		t.Errorf("name of %d characters: %s", len(name), name)
	}
}

// TestPodLevelResources: what a pod asks for as a whole has the API server's defaults.
func TestPodLevelResources(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pod, container string
		want                 map[string]string
	}{
		{"limits are requests", "limits: {cpu: 1, memory: 1Gi}", "", map[string]string{"cpu": "1", "memory": "1Gi"}},
		{"but for what containers ask for", "limits: {cpu: 1, memory: 1Gi}", "requests: {cpu: 250m}", map[string]string{"cpu": "250m", "memory": "1Gi"}},
		{"its own requests stay", "requests: {cpu: 500m}, limits: {cpu: 1}", "requests: {cpu: 250m}", map[string]string{"cpu": "500m"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := mustRead(t, "f", pod("p", "  resources: {"+tt.pod+"}\n")+"    resources: {"+tt.container+"}\n").Pods[0]
			got := map[string]string{}
			for name, q := range p.Spec.Resources.Requests {
				got[string(name)] = q.String()
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
		})
	}
	_, err := Read(dir("f", pod("p", "  resources: {limits: {cpu: 1}}\n")+"    resources: {limits: {cpu: 2}}\n"))
	if err == nil || !strings.Contains(err.Error(), "must be less than or equal to pod limits of 1") {
		t.Errorf("a container with more than its pod: %v", err)
	}
}
