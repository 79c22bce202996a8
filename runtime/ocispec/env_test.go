package ocispec

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// testContext is that of a pod "web" with the given container alone.
func testContext(c v1.Container) Context {
	return Context{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Namespace: "shop", UID: "uid-1",
				Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"example.com/Note": "hi"},
			},
			Spec: v1.PodSpec{Containers: []v1.Container{c}, NodeName: "n1", ServiceAccountName: "robot"},
		},
		Image:   engine.Image{Ref: "docker.io/library/web:1", Entrypoint: []string{"/web"}, Cmd: []string{"serve"}},
		Sandbox: engine.Sandbox{NetNS: "/ns/net", IPCNS: "/ns/ipc", UTSNS: "/ns/uts", Hostname: "web", IPs: []string{"10.0.0.5", "fd00::5"}},
		Objects: enginetest.Objects{
			ConfigMaps: map[string]*v1.ConfigMap{"shop/conf": {Data: map[string]string{"B": "conf-b", "A": "conf-a"}}},
			Secrets:    map[string]*v1.Secret{"shop/key": {Data: map[string][]byte{"A": []byte("key-a"), "odd name": []byte("x")}}},
		},
		Node: Node{
			Name: "n1", IPs: []string{"192.0.2.1", "2001:db8::1"}, MemoryCapacity: 8 << 30,
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("7Gi")},
		},
	}
}

func configMapRef(prefix, name string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional,
	}}
}

func secretRef(prefix, name string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional,
	}}
}

func configMapKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func secretKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func fileKey(path, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "work", Path: path, Key: key, Optional: &optional}}
}

func field(path string) *v1.EnvVarSource {
	return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
}

func resourceField(name, divisor string) *v1.EnvVarSource {
	sel := &v1.ResourceFieldSelector{Resource: name}
	if divisor != "" {
		sel.Divisor = resource.MustParse(divisor)
	}
	return &v1.EnvVarSource{ResourceFieldRef: sel}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		from    []v1.EnvFromSource
		env     []v1.EnvVar
		image   []string
		service []v1.EnvVar
		want    []string // after PATH and HOSTNAME
		wantErr string
	}{
		{name: "nothing"},
		{
			name:  "the image's variables, one unset again",
			image: []string{"LANG=C", "GONE=1", "GONE", "LANG=C.UTF-8"},
			want:  []string{"LANG=C.UTF-8"},
		},
		{
			name:  "the manifest wins over the image and keeps its place",
			image: []string{"A=image", "Z=image"},
			env:   []v1.EnvVar{{Name: "B", Value: "b"}, {Name: "A", Value: "a"}},
			want:  []string{"A=a", "Z=image", "B=b"},
		},
		{
			name: "envFrom in order, sorted within, with prefix; later wins",
			from: []v1.EnvFromSource{configMapRef("", "conf", false), secretRef("", "key", false), configMapRef("P_", "conf", false)},
			want: []string{"A=key-a", "B=conf-b", "odd name=x", "P_A=conf-a", "P_B=conf-b"},
		},
		{
			name: "env wins over envFrom",
			from: []v1.EnvFromSource{configMapRef("", "conf", false)},
			env:  []v1.EnvVar{{Name: "B", Value: "env"}},
			want: []string{"A=conf-a", "B=env"},
		},
		{
			name: "references",
			from: []v1.EnvFromSource{configMapRef("", "conf", false)},
			env: []v1.EnvVar{
				{Name: "ONE", Value: "1"},
				{Name: "BOTH", Value: "$(ONE)-$(A)"},
				{Name: "LATER", Value: "$(NEXT)"},
				{Name: "NEXT", Value: "next"},
				{Name: "ESCAPED", Value: "$$(ONE) $$$(ONE)"},
				{Name: "OPEN", Value: "$(ONE $ONE ${ONE} $"},
				{Name: "ONCE", Value: "$(RAW)"},
				{Name: "RAW", Value: "$$(ONE)"},
				{Name: "TWICE", Value: "$(RAW)"},
				{Name: "ONE", Value: "$(ONE)1"},
				{Name: "ODD", Value: "$(any thing)"},
			},
			want: []string{
				"A=conf-a", "B=conf-b", "ONE=11", "BOTH=1-conf-a", "LATER=$(NEXT)", "NEXT=next", "ESCAPED=$(ONE) $1",
				"OPEN=$(ONE $ONE ${ONE} $", "ONCE=$(RAW)", "RAW=$(ONE)", "TWICE=$(ONE)", "ODD=$(any thing)",
			},
		},
		{
			name:  "a reference does not see the image's variables",
			image: []string{"LANG=C"},
			env:   []v1.EnvVar{{Name: "X", Value: "$(LANG) $(PATH) $(HOSTNAME)"}},
			want:  []string{"LANG=C", "X=$(LANG) $(PATH) $(HOSTNAME)"},
		},
		{
			name:    "those of Services come last, and replace nothing",
			image:   []string{"DB_PORT=image"},
			env:     []v1.EnvVar{{Name: "URL", Value: "http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"}, {Name: "DB_SERVICE_PORT", Value: "1"}, {Name: "OWN", Value: "$(DB_SERVICE_PORT)"}},
			service: []v1.EnvVar{{Name: "DB_SERVICE_HOST", Value: "10.1.0.7"}, {Name: "DB_SERVICE_PORT", Value: "80"}, {Name: "DB_PORT", Value: "tcp"}},
			want:    []string{"DB_PORT=tcp", "URL=http://10.1.0.7:80", "DB_SERVICE_PORT=1", "OWN=1", "DB_SERVICE_HOST=10.1.0.7"},
		},
		{
			name: "values from elsewhere are not expanded, but can be referred to",
			env: []v1.EnvVar{
				{Name: "NAME", ValueFrom: field("metadata.name")},
				{Name: "REF", Value: "$(NAME).example"},
				{Name: "EMPTY"},
				{Name: "E", Value: "[$(EMPTY)]"},
			},
			want: []string{"NAME=web", "REF=web.example", "EMPTY=", "E=[]"},
		},
		{
			name: "fields",
			env: []v1.EnvVar{
				{Name: "NS", ValueFrom: field("metadata.namespace")},
				{Name: "UID", ValueFrom: field("metadata.uid")},
				{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
				{Name: "NOTE", ValueFrom: field("metadata.annotations['example.com/Note']")},
				{Name: "NONE", ValueFrom: field("metadata.labels['none']")},
				{Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "SA", ValueFrom: field("spec.serviceAccountName")},
				{Name: "HOST", ValueFrom: field("status.hostIP")},
				{Name: "HOSTS", ValueFrom: field("status.hostIPs")},
				{Name: "IP", ValueFrom: field("status.podIP")},
				{Name: "IPS", ValueFrom: field("status.podIPs")},
			},
			want: []string{
				"NS=shop", "UID=uid-1", "LABEL=web", "NOTE=hi", "NONE=", "NODE=n1", "SA=robot",
				"HOST=192.0.2.1", "HOSTS=192.0.2.1,2001:db8::1", "IP=10.0.0.5", "IPS=10.0.0.5,fd00::5",
			},
		},
		{
			name: "resources, rounded up",
			env: []v1.EnvVar{
				{Name: "CPU", ValueFrom: resourceField("limits.cpu", "")},
				{Name: "MILLI", ValueFrom: resourceField("limits.cpu", "1m")},
				{Name: "REQ", ValueFrom: resourceField("requests.cpu", "1m")},
				{Name: "MEM", ValueFrom: resourceField("limits.memory", "1Mi")},
				{Name: "DISK", ValueFrom: resourceField("requests.ephemeral-storage", "")},
				{Name: "HUGE", ValueFrom: resourceField("limits.hugepages-2Mi", "1Mi")},
			},
			want: []string{"CPU=2", "MILLI=1500", "REQ=0", "MEM=7168", "DISK=0", "HUGE=0"},
		},
		{
			name: "keys",
			env:  []v1.EnvVar{{Name: "X", ValueFrom: configMapKey("conf", "A", false)}, {Name: "Y", ValueFrom: secretKey("key", "A", false)}},
			want: []string{"X=conf-a", "Y=key-a"},
		},
		{
			name: "what is optional and absent is left out",
			from: []v1.EnvFromSource{configMapRef("", "none", true), secretRef("", "none", true)},
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: configMapKey("none", "A", true)},
				{Name: "B", ValueFrom: configMapKey("conf", "none", true)},
				{Name: "C", ValueFrom: secretKey("none", "A", true)},
				{Name: "D", ValueFrom: secretKey("key", "none", true)},
			},
		},
		{name: "no such configMap", from: []v1.EnvFromSource{configMapRef("", "none", false)}, wantErr: `configmap "none" not found`},
		{name: "no such secret", env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("none", "A", false)}}, wantErr: `secret "none" not found`},
		{
			name: "no such key", env: []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("conf", "none", false)}},
			wantErr: "couldn't find key none in ConfigMap shop/conf",
		},
		{
			name: "no such secret key", env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("key", "none", false)}},
			wantErr: "couldn't find key none in Secret shop/key",
		},
		{
			name: "no such field", env: []v1.EnvVar{{Name: "A", ValueFrom: field("status.phase")}},
			wantErr: `environment variable "A" of container "c": unsupported fieldPath: status.phase`,
		},
		{
			name: "no such resource", env: []v1.EnvVar{{Name: "A", ValueFrom: resourceField("limits.gpu", "")}},
			wantErr: `environment variable "A" of container "c": unsupported container resource: limits.gpu`,
		},
		{
			name: "files",
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: fileKey("env", "A", false)},
				{Name: "NONE", ValueFrom: fileKey("env", "NONE", true)},
				{Name: "B", Value: "[$(A)]"},
			},
			want: []string{"A=from file", "B=[from file]"},
		},
		{
			name: "no such key in a file", env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("env", "NONE", false)}},
			wantErr: `environment variable key "NONE" not found in file "env" of volume "work"`,
		},
		{
			name: "no such file", env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("none", "A", true)}},
			wantErr: `couldn't parse env file "none" of volume "work": file does not exist`,
		},
		{
			name: "NUL", env: []v1.EnvVar{{Name: "A", Value: "x\x00y"}},
			wantErr: `environment variable "A" of container "c" contains a NUL byte`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			container := v1.Container{Name: "c", Env: tt.env, EnvFrom: tt.from}
			container.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")}
			ctx := testContext(container)
			ctx.Image.Env, ctx.Services = tt.image, tt.service
			ctx.File = func(volume, path string) ([]byte, error) {
				if volume+"/"+path != "work/env" {
					return nil, fs.ErrNotExist
				}
				return []byte("A='from file'\n"), nil
			}
			got, err := Environment(ctx, &container)
			if tt.wantErr != "" {
				wantConfigError(t, err, failure.ReasonConfigError, tt.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"PATH=" + defaultPath, "HOSTNAME=web"}, tt.want...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func wantConfigError(t *testing.T, err error, reason, text string) {
	t.Helper()
	var e *failure.Error
	if !errors.As(err, &e) || !e.Permanent() || e.Reason() != reason || err.Error() != text {
		t.Fatalf("error %v (%T), want %s: %s", err, err, reason, text)
	}
}

func TestFilesNeedAReader(t *testing.T) {
	t.Parallel()
	c := v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("env", "A", false)}}}
	_, err := Environment(testContext(c), &c)
	wantConfigError(t, err, failure.ReasonConfigError, `environment variable "A" of container "c": this kind of valueFrom is not supported`)
}

func TestImagePathWins(t *testing.T) {
	t.Parallel()
	ctx := testContext(v1.Container{Name: "c"})
	ctx.Image.Env = []string{"PATH=/app/bin"}
	got, err := Environment(ctx, &ctx.Pod.Spec.Containers[0])
	if err != nil || len(got) != 2 || got[0] != "PATH=/app/bin" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		command, args   []string
		entrypoint, cmd []string
		want            []string
		wantErr         string
	}{
		{name: "the image's", entrypoint: []string{"/e"}, cmd: []string{"c"}, want: []string{"/e", "c"}},
		{name: "args replace CMD", args: []string{"a"}, entrypoint: []string{"/e"}, cmd: []string{"c"}, want: []string{"/e", "a"}},
		{name: "command drops CMD", command: []string{"/x"}, entrypoint: []string{"/e"}, cmd: []string{"c"}, want: []string{"/x"}},
		{name: "both", command: []string{"/x"}, args: []string{"a"}, entrypoint: []string{"/e"}, cmd: []string{"c"}, want: []string{"/x", "a"}},
		{name: "CMD alone", cmd: []string{"c", "d"}, want: []string{"c", "d"}},
		{name: "an empty ENTRYPOINT", entrypoint: []string{""}, cmd: []string{"c", "d"}, want: []string{"c", "d"}},
		{name: "args alone", args: []string{"a"}, want: []string{"a"}},
		{
			name: "none", wantErr: `no command specified: neither container "c" nor image "docker.io/library/web:1" has one`,
		},
		{
			name: "references", command: []string{"/bin/$(NAME)"}, args: []string{"$(NAME)", "$$(NAME)", "$(LANG)", "$(none)", "$(HOSTNAME)"},
			want: []string{"/bin/joe", "joe", "$(NAME)", "$(LANG)", "$(none)", "$(HOSTNAME)"},
		},
		{name: "the image's is not expanded", entrypoint: []string{"$(NAME)"}, cmd: []string{"$$"}, want: []string{"$(NAME)", "$$"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			container := v1.Container{Name: "c", Command: tt.command, Args: tt.args, Env: []v1.EnvVar{{Name: "NAME", Value: "joe"}}}
			ctx := testContext(container)
			ctx.Image.Entrypoint, ctx.Image.Cmd, ctx.Image.Env = tt.entrypoint, tt.cmd, []string{"LANG=C"}
			got, err := command(ctx, &container)
			if tt.wantErr != "" {
				wantConfigError(t, err, failure.ReasonCreateError, tt.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
