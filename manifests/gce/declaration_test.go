package gce

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// declared returns the pod of a declaration, and the problems with it.
func declared(t *testing.T, text string) (*v1.Pod, decode.Diagnostics) {
	t.Helper()
	docs, problems := decode.Split("d", []byte(text+"\n"))
	if len(docs) != 1 || len(problems) > 0 {
		t.Fatalf("%d documents, %v", len(docs), problems)
	}
	return Pod(docs[0])
}

const least = "spec: {containers: [{image: nginx}]}"

// leastPod is what the agent makes of a declaration that says nothing but the image.
func leastPod() *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "container"},
		Spec: v1.PodSpec{
			HostNetwork: true, DNSPolicy: v1.DNSDefault, RestartPolicy: v1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(10)),
			SecurityContext:               &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}},
			Containers:                    []v1.Container{{Name: "container", Image: "nginx", ImagePullPolicy: v1.PullAlways}},
		},
	}
}

// TestFields: what each field of a declaration becomes.
func TestFields(t *testing.T) {
	t.Parallel()
	container := func(fields string) string { return "spec: {containers: [{image: nginx, " + fields + "}]}" }
	volume := func(mount, volume string) string {
		return "spec: {containers: [{image: nginx, volumeMounts: [" + mount + "]}], volumes: [{name: v, " + volume + "}]}"
	}
	mounted := func(p *v1.Pod, readOnly bool, source v1.VolumeSource) {
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: readOnly}}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: source}}
	}
	disk := func(s v1.GCEPersistentDiskVolumeSource) v1.VolumeSource {
		return v1.VolumeSource{GCEPersistentDisk: &s}
	}
	for _, test := range []struct {
		name, text string
		change     func(*v1.Pod, *v1.Container)
	}{
		{"nothing but the image", least, func(*v1.Pod, *v1.Container) {}},
		{"null", "spec: {containers: [{image: nginx, command: null, args: null, env: null, volumeMounts: null, securityContext: null}], volumes: null, restartPolicy: null}", func(*v1.Pod, *v1.Container) {}},
		{"kind", "apiVersion: v1\nkind: Pod\n" + least, func(*v1.Pod, *v1.Container) {}},
		{"metadata.name", "metadata: {name: web}\n" + least, func(p *v1.Pod, _ *v1.Container) { p.Name = "web" }},
		{"name", container("name: web"), func(p *v1.Pod, c *v1.Container) { p.Name, c.Name = "web", "web" }},
		{"command", container("command: [sh, -c]"), func(_ *v1.Pod, c *v1.Container) { c.Command = []string{"sh", "-c"} }},
		{"args", container("args: [a b, c]"), func(_ *v1.Pod, c *v1.Container) { c.Args = []string{"a b", "c"} }},
		{"literal texts", container("command: [$(A), $A], args: [$$, a$(A)$$b], env: [{name: B, value: $(A)}]"), func(_ *v1.Pod, c *v1.Container) {
			c.Command, c.Args = []string{"$$(A)", "$A"}, []string{"$$$$", "a$$(A)$$$$b"}
			c.Env = []v1.EnvVar{{Name: "B", Value: "$$(A)"}}
		}},
		{"env", container("env: [{name: A, value: a}, {name: B}, {name: C, value: null}]"), func(_ *v1.Pod, c *v1.Container) {
			c.Env = []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "B"}, {Name: "C"}}
		}},
		{"numbers and booleans", container("args: [8080, 0x1F, 1.50, yes], env: [{name: A, value: 007}, {name: B, value: off}]"), func(_ *v1.Pod, c *v1.Container) {
			c.Args = []string{"8080", "0x1F", "1.50", "yes"}
			c.Env = []v1.EnvVar{{Name: "A", Value: "007"}, {Name: "B", Value: "off"}}
		}},
		{"stdin", container("stdin: true"), func(_ *v1.Pod, c *v1.Container) { c.Stdin = true }},
		{"tty", container("tty: yes"), func(_ *v1.Pod, c *v1.Container) { c.TTY = true }},
		{"privileged", container("securityContext: {privileged: true}"), func(_ *v1.Pod, c *v1.Container) {
			c.SecurityContext = &v1.SecurityContext{Privileged: new(true)}
		}},
		{"not privileged", container("securityContext: {privileged: false}"), func(*v1.Pod, *v1.Container) {}},
		{"Always", least[:len(least)-1] + ", restartPolicy: Always}", func(*v1.Pod, *v1.Container) {}},
		{"OnFailure", least[:len(least)-1] + ", restartPolicy: OnFailure}", func(p *v1.Pod, _ *v1.Container) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }},
		{"Never", least[:len(least)-1] + ", restartPolicy: Never}", func(p *v1.Pod, _ *v1.Container) { p.Spec.RestartPolicy = v1.RestartPolicyNever }},
		{"hostPath", volume("{name: v, mountPath: /v}", "hostPath: {path: /data}"), func(p *v1.Pod, _ *v1.Container) {
			mounted(p, false, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}})
		}},
		{"emptyDir", volume("{name: v, mountPath: /v, readOnly: true}", "emptyDir: {medium: Memory}"), func(p *v1.Pod, _ *v1.Container) {
			mounted(p, true, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
		}},
		{"gcePersistentDisk", volume("{name: v, mountPath: /v}", "gcePersistentDisk: {pdName: data}"), func(p *v1.Pod, _ *v1.Container) {
			mounted(p, false, disk(v1.GCEPersistentDiskVolumeSource{PDName: "data", FSType: "ext4"}))
		}},
		{"a disk for readers", volume("{name: v, mountPath: /v, readOnly: true}", "gcePersistentDisk: {pdName: data, fsType: ext4, partition: 8}"), func(p *v1.Pod, _ *v1.Container) {
			mounted(p, true, disk(v1.GCEPersistentDiskVolumeSource{PDName: "data", FSType: "ext4", Partition: 8, ReadOnly: true}))
		}},
		{"a disk with a reader", volume("{name: v, mountPath: /v}, {name: v, mountPath: /w, readOnly: true}", "gcePersistentDisk: {pdName: data}"), func(p *v1.Pod, c *v1.Container) {
			mounted(p, false, disk(v1.GCEPersistentDiskVolumeSource{PDName: "data", FSType: "ext4"}))
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "v", MountPath: "/w", ReadOnly: true})
		}},
	} {
		got, problems := declared(t, test.text)
		want := leastPod()
		test.change(want, &want.Spec.Containers[0])
		if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, problems, diff)
		}
	}
}

// TestRefused: each error is one line that says where, what is wrong and what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	container := func(fields string) string { return "spec:\n  containers:\n  - image: nginx\n    " + fields }
	mount := container("volumeMounts: [{name: v, mountPath: /v}]\n  volumes:\n  - name: v\n    ")
	for text, want := range map[string]string{
		"{}":                               "d:1: spec.containers: Required value (a declaration has exactly one container)",
		"spec: {containers: []}":           "d:1: spec.containers: Required value (a declaration has exactly one container)",
		"spec: [a]":                        `d:1: spec: got a list, want an object (remove the "- ")`,
		container("name: a\n  - x: 1"):     "d:5: spec.containers[1].x: unknown field (the agent does not read it either: remove it, or write a Pod)",
		container("name: a\n  - image: b"): "d:5: spec.containers[1]: a declaration has exactly one container (write a declaration for each, or a Pod)",
		container("resources: {limits: {cpu: 1}}"):   "d:4: spec.containers[0].resources: unknown field (the agent does not read it either: remove it, or write a Pod)",
		container("vulumeMounts: []"):                "d:4: spec.containers[0].vulumeMounts: unknown field (did you mean volumeMounts?)",
		container("restartPolicy: Never"):            "d:4: spec.containers[0].restartPolicy: unknown field (it belongs in an outer object: check the indentation)",
		container("env: [{name: A, valueFrom: {}}]"): "d:4: spec.containers[0].env[0].valueFrom: unknown field (did you mean value?)",
		container("command: sh"):                     `d:4: spec.containers[0].command: got a string ("sh"), want a list (write a list: ["sh"])`,
		container("command: []"):                     "d:4: spec.containers[0].command: an empty command has the agent run the arguments without the image's entrypoint, which a pod cannot (name the program, or remove the field)",
		container("name: Web"):                       `d:4: spec.containers[0].name: Invalid value: "Web": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?') (rename it)`,
		container("stdin: perhaps"):                  `d:4: spec.containers[0].stdin: got a string ("perhaps"), want true or false`,
		container("securityContext: {runAsUser: 1}"): "d:4: spec.containers[0].securityContext.runAsUser: unknown field (the agent does not read it either: remove it, or write a Pod)",
		container("volumeMounts: [{name: v, mountPath: v}]\n  volumes: [{name: v, hostPath: {path: /v}}]"): "d:4: spec.containers[0].volumeMounts[0].mountPath: must be an absolute path (begin it with /)",
		"kind: Deployment\n" + least:                                          `d:1: kind: "Deployment" is not that of a declaration (remove it)`,
		"apiVersion: apps/v1\n" + least:                                       `d:1: apiVersion: "apps/v1" is not that of a declaration (remove it)`,
		"metadata: {labels: {a: b}}\n" + least:                                "d:1: metadata.labels: unknown field (the agent does not read it either: remove it, or write a Pod)",
		least + "\nstatus: {}":                                                "d:2: status: unknown field (the agent does not read it either: remove it, or write a Pod)",
		container("tty: false\n  restartPolicy: always"):                      `d:5: spec.restartPolicy: "always" is not a restart policy (did you mean Always?)`,
		container("tty: false\n  restartPolicy: ''"):                          `d:5: spec.restartPolicy: "" is not a restart policy (write Always, OnFailure, Never or nothing)`,
		container("tty: false\n  volumes: [{name: v, hostPath: {path: /v}}]"): `d:5: spec.volumes[0]: volume "v" is not mounted by the container (mount it, or remove it)`,
		mount + "emptyDir: {}":                                                `d:7: spec.volumes[0].emptyDir.medium: "" is not supported by the agent (write Memory, or a Pod for a directory on disk)`,
		mount + "emptyDir: {medium: Tablet}":                                  `d:7: spec.volumes[0].emptyDir.medium: "Tablet" is not supported by the agent (write Memory, or a Pod for a directory on disk)`,
		mount + "emptyDir: {medium: Memory}\n    hostPath: {path: /v}":        "d:6: spec.volumes[0]: is of 2 kinds, want one (write emptyDir, hostPath or gcePersistentDisk)",
		mount + "emptyDir: null":                                              "d:6: spec.volumes[0]: is of 0 kinds, want one (write emptyDir, hostPath or gcePersistentDisk)",
		mount + "hostPath: {path: /v, type: File}":                            "d:7: spec.volumes[0].hostPath.type: unknown field (the agent does not read it either: remove it, or write a Pod)",
		mount + "gcePersistentDisk: {pdName: data, readOnly: true}":           "d:7: spec.volumes[0].gcePersistentDisk.readOnly: unknown field (the agent does not read it either: remove it, or write a Pod)",
		mount + "gcePersistentDisk: {pdName: data, partition: none}":          `d:7: spec.volumes[0].gcePersistentDisk.partition: got a string ("none"), want a whole number`,
		mount + "gcePersistentDisk: {pdName: data, partition: 9000000000}":    "d:7: spec.volumes[0].gcePersistentDisk.partition: 9000000000 does not fit into 32 bits",
	} {
		pod, problems := declared(t, text)
		if pod != nil || problems.Error() != want {
			t.Errorf("%s\n got %s\nwant %s", text, problems, want)
		}
	}
}

// TestLikelyMistakes: what the agent warns about is a warning here.
func TestLikelyMistakes(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		"command: [nginx -g]":        `d:1: spec.containers[0].command[0]: "nginx -g" is one argument, spaces included (write each argument as an item of its own)`,
		"args: [' nginx']":           `d:1: spec.containers[0].args[0]: " nginx" is one argument, spaces included (write each argument as an item of its own)`,
		"command: [sh], args: [a b]": "",
		"command: [sh]":              "",
	} {
		pod, problems := declared(t, "spec: {containers: [{image: nginx, "+fields+"}]}")
		if pod == nil || problems.Error() != want || len(problems.Of(decode.SeverityError)) > 0 {
			t.Errorf("%s: %v", fields, problems)
		}
	}
}

// FuzzPod: a pod or an error, each in one line, for any document.
func FuzzPod(f *testing.F) {
	f.Add(least)
	f.Add("spec: {containers: [{name: a, image: b, command: [c], args: [$(d)], env: [{name: e, value: 1}], tty: true}], restartPolicy: Never}")
	f.Add("spec: {containers: [{image: b, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, gcePersistentDisk: {pdName: d}}]}")
	f.Add("spec: {containers: [{image: &a 1, stdin: *a}], volumes: [{emptyDir: {}, hostPath: {}}]}\nkind: Pod\n---\n- a\n")
	f.Fuzz(func(t *testing.T, text string) {
		docs, _ := decode.Split("d", []byte(text))
		for _, doc := range docs {
			pod, problems := Pod(doc)
			if (pod == nil) != (len(problems.Of(decode.SeverityError)) > 0) {
				t.Fatalf("pod %v, problems %v", pod, problems)
			}
			if strings.Count(problems.Error(), "\n") > max(0, len(problems)-1) {
				t.Fatalf("several lines: %q", problems.Error())
			}
		}
	})
}
