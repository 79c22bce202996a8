package compose

var containerCases = []fieldCase{
	{
		name: "nothing", service: "",
		want: `
Pod/web:
  metadata: {labels: {app: web}, annotations: null, namespace: null}
  spec:
    restartPolicy: Never
    terminationGracePeriodSeconds: 10
    enableServiceLinks: false
    securityContext: {seccompProfile: {type: RuntimeDefault}}
    containers: [{name: web, image: nginx, imagePullPolicy: IfNotPresent, command: null, args: null, resources: null, securityContext: null, readinessProbe: null}]
Service/web:
  spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: web}, ports: null}
  status: null`,
	},
	{
		name: "a command as a string is split as by a shell", service: `command: sh -c "echo 'a b' $$HOME"`,
		want: `Pod/web: {spec: {containers: [{command: null, args: [sh, -c, "echo 'a b' $HOME"]}]}}`,
	},
	{
		name: "Kubernetes replaces $(NAME) and $$, compose does not", service: "command: [sh, -c, 'echo $$(date) $$$$ $$X']\nenvironment: {A: '$$(B)', B: b}",
		want: `Pod/web: {spec: {containers: [{args: [sh, -c, 'echo $$(date) $$$ $X'], env: [{name: A, value: '$$(B)'}, {name: B, value: b}]}]}}`,
	},
	{
		name: "entrypoint", service: "entrypoint: /run.sh -v\ncommand: [x]",
		want: `Pod/web: {spec: {containers: [{command: [/run.sh, -v], args: [x]}]}}`,
	},
	{
		name: "an empty entrypoint", service: "entrypoint: []\ncommand: [x, z]",
		want: `Pod/web: {spec: {containers: [{command: [x, z], args: null}]}}`,
	},
	{
		name: "an empty entrypoint with the image's command", service: "entrypoint: []",
		problems: `error: 4: services.web.entrypoint: is empty, so the image's command would run alone, which a pod cannot say: write that command here`,
	},
	{
		name: "environment", service: "env_file: some.env\nenvironment: [B=own, 'UNSET_IN_TESTS', EMPTY=]",
		want: `Pod/web: {spec: {containers: [{env: [{name: A, value: '1'}, {name: B, value: own}, {name: EMPTY}]}]}}`,
	},
	{
		name: "directory, input and terminal", service: "working_dir: /app\ntty: true\nstdin_open: true",
		want: `Pod/web: {spec: {containers: [{workingDir: /app, tty: true, stdin: true}]}}`,
	},
	{
		name: "user and groups", service: "user: '1000:1001'\ngroup_add: ['44', audio]",
		want:     `Pod/web: {spec: {securityContext: {supplementalGroups: [44]}, containers: [{securityContext: {runAsUser: 1000, runAsGroup: 1001}}]}}`,
		problems: `5: services.web.group_add[audio]: groups are given by numbers: audio is left out`,
	},
	{name: "root", service: "user: root", want: `Pod/web: {spec: {containers: [{securityContext: {runAsUser: 0}}]}}`},
	{
		name: "a user by name", service: "user: www-data:www-data", want: `Pod/web: {spec: {containers: [{securityContext: null}]}}`,
		problems: `4: services.web.user: users are given by numbers: www-data:www-data is left out, and the image's user is used`,
	},
	{
		name: "a group by name", service: "user: '5:www'", want: `Pod/web: {spec: {containers: [{securityContext: {runAsUser: 5, runAsGroup: null}}]}}`,
		problems: `4: services.web.user: groups are given by numbers: the group www is left out`,
	},
	{
		name: "privileges", service: "cap_add: [CAP_NET_ADMIN, sys_time]\ncap_drop: [ALL]\nprivileged: true\nread_only: true",
		want: `Pod/web: {spec: {containers: [{securityContext: {capabilities: {add: [NET_ADMIN, SYS_TIME], drop: [ALL]}, privileged: true, readOnlyRootFilesystem: true}}]}}`,
	},
	{
		name:    "security options",
		service: "security_opt: ['no-new-privileges:true', 'seccomp=unconfined', 'apparmor:mine', 'label:type:t', 'label:level:s0', 'systempaths=unconfined']",
		want: `Pod/web: {spec: {containers: [{securityContext: {allowPrivilegeEscalation: false, seccompProfile: {type: Unconfined},
  appArmorProfile: {type: Localhost, localhostProfile: mine}, seLinuxOptions: {type: t, level: s0}}}]}}`,
		problems: `4: services.web.security_opt[systempaths=unconfined]: is left out`,
	},
	{
		name: "no new privileges for what has all", service: "privileged: true\nsecurity_opt: [no-new-privileges, 'apparmor=unconfined', 'label=disable', 'seccomp=mine.json']",
		want: `Pod/web: {spec: {containers: [{securityContext: {allowPrivilegeEscalation: null, appArmorProfile: {type: Unconfined}, seLinuxOptions: {type: spc_t}}}]}}`,
		problems: `5: services.web.security_opt[no-new-privileges]: is left out: the container is privileged, or has SYS_ADMIN
5: services.web.security_opt[seccomp=mine.json]: the default profile is used: put this one in the directory seccomp of --root, and name it in seccompProfile`,
	},
	{
		name: "sysctls", service: "sysctls: [net.core.somaxconn=1024, net.ipv4.tcp_syncookies=0]",
		want:     `Pod/web: {spec: {securityContext: {sysctls: [{name: net.core.somaxconn, value: '1024'}, {name: net.ipv4.tcp_syncookies, value: '0'}]}}}`,
		problems: `4: services.web.sysctls.net.core.somaxconn: allow it when you run the pods: --allow-unsafe-sysctls net.core.somaxconn`,
	},
	{
		name: "a limit is no request", service: "cpus: 0.5\nmem_limit: 64m",
		want: `Pod/web: {spec: {containers: [{resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: '0', memory: '0'}}}]}}`,
	},
	{
		name: "reservations", service: "cpu_quota: 150000\ncpu_shares: 512\nmem_reservation: 1g\nmem_limit: 2g\nmemswap_limit: 2g",
		want: `Pod/web: {spec: {containers: [{resources: {limits: {cpu: 1500m, memory: 2Gi}, requests: {cpu: 500m, memory: 1Gi}}}]}}`,
	},
	{
		name:     "resources of deploy",
		service:  "deploy: {resources: {limits: {cpus: '2', memory: 1G, pids: 9}, reservations: {cpus: '0.25', memory: 20M, devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}",
		want:     `Pod/web: {spec: {containers: [{resources: {limits: {cpu: '2', memory: 1Gi, nvidia.com/gpu: '2'}, requests: {cpu: 250m, memory: 20Mi}}}]}}`,
		problems: `4: services.web.deploy.resources.limits.pids: the number of processes is limited for all pods alike, by --pod-pids-limit`,
	},
	{
		name: "gpus", service: "gpus: all", want: `Pod/web: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: '1'}}}]}}`,
		problems: `4: services.web.gpus: a pod requests a number of devices: it gets one, where it is to get all`,
	},
	{
		name: "other devices", service: "gpus: [{driver: x, count: 1}, {driver: amd, device_ids: ['0', '3']}]\nmemswap_limit: 1g",
		want: `Pod/web: {spec: {containers: [{resources: {limits: {amd.com/gpu: '2', nvidia.com/gpu: null}}}]}}`,
		problems: `4: services.web.gpus: devices are not chosen by their IDs: it gets any 2
4: services.web.gpus: devices of the driver x are left out: request a kind of CDI devices instead
5: services.web.memswap_limit: pods do not swap unless --swap says so`,
	},
	{
		name: "stopping", service: "stop_signal: QUIT\nstop_grace_period: 1m30s",
		want: `Pod/web: {spec: {terminationGracePeriodSeconds: 90, os: {name: linux}, containers: [{lifecycle: {stopSignal: SIGQUIT}}]}}`,
	},
	{
		name: "a signal by number", service: "stop_signal: '37'\nstop_grace_period: 1500ms",
		want:     `Pod/web: {spec: {terminationGracePeriodSeconds: 2, containers: [{lifecycle: {stopSignal: SIGRTMIN+3}}]}}`,
		problems: `5: services.web.stop_grace_period: 1.5s is rounded up to 2 seconds`,
	},
	{
		name: "a signal without a name", service: "stop_signal: '7'", want: `Pod/web: {spec: {containers: [{lifecycle: null}]}}`,
		problems: `4: services.web.stop_signal: signal 7 has no name here: the image's is sent, or SIGTERM`,
	},
	{
		name: "hooks", service: "post_start: [{command: [a, b]}]\npre_stop: [{command: c, user: root}, {command: d}]",
		want: `Pod/web: {spec: {containers: [{lifecycle: {postStart: {exec: {command: [a, b]}}, preStop: {exec: {command: [c]}}}}]}}`,
		problems: `5: services.web.pre_stop: only the first command is run: a container has one such hook
5: services.web.pre_stop: the command runs with the user, the privileges, the directory and the environment of the container`,
	},
	{
		name: "containers before", service: "environment: {A: a}\nvolumes: ['/srv:/srv']\npre_start: [{command: [init], user: '0'}, {image: busybox, command: [other]}]",
		want: `Pod/web: {spec: {initContainers: [
  {name: web-pre-start-0, image: nginx, args: [init], env: [{name: A, value: a}], securityContext: {runAsUser: 0}, volumeMounts: [{mountPath: /srv}]},
  {name: web-pre-start-1, image: busybox, args: [other]}], volumes: [{hostPath: {path: /srv}}]}}`,
	},
	{name: "platform", service: "platform: linux/arm64/v8", want: `Pod/web: {spec: {nodeSelector: {kubernetes.io/arch: arm64}}}`},
	{
		name: "a variant", service: "platform: linux/arm/v7", want: `Pod/web: {spec: {nodeSelector: {kubernetes.io/arch: arm}}}`,
		problems: `4: services.web.platform: any machine with the architecture arm will do`,
	},
	{name: "a foreign system", service: "platform: windows/amd64", problems: `error: 4: services.web.platform: windows/amd64: only Linux containers run here`},
	{name: "pulled always", service: "pull_policy: always", want: `Pod/web: {spec: {containers: [{imagePullPolicy: Always}]}}`},
	{name: "pulled never", service: "pull_policy: never", want: `Pod/web: {spec: {containers: [{imagePullPolicy: Never}]}}`},
	{
		name: "pulled daily", service: "pull_policy: daily", want: `Pod/web: {spec: {containers: [{imagePullPolicy: Always}]}}`,
		problems: `4: services.web.pull_policy: daily: the image is pulled in every run`,
	},
	{
		name: "an image that is built", service: "build: .\npull_policy: build", want: `Pod/web: {spec: {containers: [{image: nginx, imagePullPolicy: IfNotPresent}]}}`,
		problems: `4: services.web.build: nothing here builds nginx: it has to be in a registry, or in an archive of --images-dir
5: services.web.pull_policy: nothing here builds nginx: it is pulled if it is not present`,
	},
	{
		name: "no image", service: "", more: "  app:\n    build: ./app\n",
		problems: `error: 5: services.app.build: service "app" has no image, and nothing here builds one: build it (docker compose build app), save it for --images-dir (docker save -o images/app.tar p-app), and convert with --image app=p-app`,
	},
	{
		name: "labels", service: "labels: {com.example.a: '1', 'x[0]': y}\nannotations: {b: c}",
		want:     `Pod/web: {metadata: {annotations: {com.example.a: '1', b: c}}}`,
		problems: `4: services.web.labels.x[0]: cannot be the name of an annotation: it is left out`,
	},
	{
		name: "what is lost", service: "ulimits: {nofile: 1}\ndevices: ['/dev/kvm']\ncpuset: '0'\npids_limit: 5\noom_score_adj: 3\nlogging: {driver: syslog}",
		problems: `4: services.web.ulimits: containers have the limits of the container engine
5: services.web.devices: are left out: request devices of a CDI specification, or make the container privileged
6: services.web.cpuset: containers use all processors
7: services.web.pids_limit: the number of processes is limited for all pods alike, by --pod-pids-limit
8: services.web.oom_score_adj: follows from the resources of the pod, as a kubelet does it
9: services.web.logging: logs are files below --log-dir, not those of the driver syslog`,
	},
	{
		name:    "what changes nothing",
		service: "logging: {driver: json-file, options: {max-size: 1m}}\nattach: false\nuserns_mode: host\npids_limit: -1\ndevelop: {watch: []}\nx-mine: {a: b}",
		more:    "x-more: {}\n",
	},
	{name: "the journal", service: "logging: {driver: journald}", problems: `4: services.web.logging: logs are files; with --container-logs journal, the journal has them as well`},
}
