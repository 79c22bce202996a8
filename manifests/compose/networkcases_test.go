package compose

var networkCases = []fieldCase{
	{
		name: "published ports", service: "ports: ['8080:80', '127.0.0.1:53:53/udp', '9000-9001:9000-9001', {target: 443, published: '8443', name: https, app_protocol: http}]",
		want: `
Pod/web: {metadata: {annotations: null}, spec: {containers: [{ports: [
  {containerPort: 80, hostPort: 8080, protocol: TCP, hostIP: null}, {containerPort: 53, hostPort: 53, hostIP: 127.0.0.1, protocol: UDP},
  {containerPort: 9000, hostPort: 9000}, {containerPort: 9001, hostPort: 9001}, {containerPort: 443, hostPort: 8443}]}]}}
Service/web: {spec: {ports: [{name: tcp-80, port: 80}, {name: udp-53, port: 53, protocol: UDP}, {name: tcp-9000}, {name: tcp-9001}, {name: https, port: 443, appProtocol: http}]}}`,
	},
	{
		name: "free ports", service: "ports: ['80', '127.0.0.1::81', '7000-7005:90/udp']",
		want:     `Pod/web: {metadata: {annotations: {runonce/publish: '80/tcp=auto, 81/tcp=127.0.0.1:auto, 90/udp=auto'}}, spec: {containers: [{ports: null}]}}`,
		problems: `4: services.web.ports[90]: any free port of the machine is published, not only one of 7000-7005`,
	},
	{
		name: "exposed ports", service: "expose: ['80', '8000-8001', '53/udp']\nports: ['8080:80']",
		want: `Service/web: {spec: {ports: [{name: tcp-80}, {name: tcp-8000, port: 8000}, {name: tcp-8001}, {name: udp-53, protocol: UDP}]}}`,
	},
	{
		name: "a port and several pods", service: "scale: 2\nrestart: always\nports: ['80:80']",
		want:     `Deployment/web: {spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{ports: [{hostPort: 80}]}]}}}}`,
		problems: `6: services.web.ports[80]: only one of the 2 pods can have port 80 of the machine`,
	},
	{
		name: "names", service: "container_name: frontend\nnetworks: {default: {aliases: [www, api.example.com]}}\nlinks: ['db:database']", more: "  db: {image: postgres}\n",
		want: `
Service/frontend: {spec: {selector: {app: web}}}
Service/www: {spec: {selector: {app: web}}}
Service/database: {spec: {selector: {app: db}}}
Service/db: {spec: {selector: {app: db}}}
Pod/web: {metadata: {annotations: {runonce/depends-on: 'db:running'}}}`,
		problems: `5: services.web.networks.default.aliases[api.example.com]: api.example.com cannot be the name of a Service: use web`,
	},
	{
		name: "a name that is taken", service: "container_name: db", more: "  db: {image: postgres}\n",
		problems: `4: services.web.container_name: another service has the name db, which leads only there`,
	},
	{
		name: "a name that no Service can have", service: "depends_on: [my_db]", more: "  my_db: {image: postgres}\n",
		want:     `{Service/my-db: {spec: {selector: {app: my-db}}}, Pod/web: {metadata: {annotations: {runonce/depends-on: 'my-db:running'}}}}`,
		problems: `5: services.my_db: is no name that a Service can have: others find it as my-db`,
	},
	{
		name: "the same name twice", service: "", more: "  a.b: {image: x}\n  a_b: {image: x}\n",
		problems: `4: services.a.b: is no name that a Service can have: others find it as a-b
error: 5: services.a_b: is named a-b here, as services.a.b is: rename one of them
5: services.a_b: is no name that a Service can have: others find it as a-b`,
	},
	{
		name: "the network of the machine", service: "network_mode: host\nports: ['80:80']\nhostname: x",
		want:     `{Pod/web: {spec: {hostNetwork: true, hostname: null, containers: [{ports: null}]}}, Service/web: null}`,
		problems: `6: services.web.hostname: with the network of the machine, a pod has the host name of the machine`,
	},
	{name: "no network", service: "network_mode: none", problems: `4: services.web.network_mode: every pod has a network`},
	{
		name: "the network of a container", service: "network_mode: container:x",
		problems: `error: 4: services.web.network_mode: service "web": containers of others have no network for pods: use service:NAME`,
	},
	{
		name: "the network of another service", service: "hostname: front\nrestart: always\nstop_grace_period: 5s",
		more: `
  proxy: {image: envoy, network_mode: "service:web", depends_on: {web: {condition: service_started}, db: {condition: service_healthy}}, stop_grace_period: 20s, hostname: other}
  watcher: {image: w, pid: "service:proxy", restart: always}
  db: {image: postgres, healthcheck: {test: [CMD, ok]}}
  client: {image: c, depends_on: [proxy, watcher]}
`,
		want: `
Pod/web:
  metadata: {annotations: {runonce/depends-on: db}}
  spec:
    hostname: front
    restartPolicy: Always
    shareProcessNamespace: true
    terminationGracePeriodSeconds: 20
    containers: [{name: web, restartPolicy: null}, {name: proxy, restartPolicy: Never}, {name: watcher, restartPolicy: null}]
Pod/proxy: null
Service/proxy: null
Service/watcher: {spec: {selector: {app: web}}}
Pod/client: {metadata: {annotations: {runonce/depends-on: 'web:running'}}}`,
		problems: `8: services.proxy: hostname and dns are those of the pod of web`,
	},
	{name: "namespaces of the machine", service: "pid: host\nipc: host", want: `Pod/web: {spec: {hostPID: true, hostIPC: true}}`},
	{
		name: "namespaces of containers", service: "pid: container:x\nipc: container:y\nuts: host",
		problems: `error: 4: services.web.pid: service "web": container:x is no namespace that a pod can have
error: 5: services.web.ipc: service "web": container:y is no namespace that a pod can have
6: services.web.uts: a pod has a host name of its own`,
	},
	{name: "an init process", service: "init: true", want: `Pod/web: {spec: {shareProcessNamespace: true}}`},
	{
		name: "a runtime", service: "runtime: runsc", want: `{Pod/web: {spec: {runtimeClassName: runsc}}, RuntimeClass/runsc: {handler: runsc}}`,
		problems: `4: services.web.runtime: say what it is when you run the pods: --runtime-handler runsc=PATH`,
	},
	{
		name: "hosts", service: "extra_hosts: ['a:192.0.2.1', 'B:192.0.2.1', 'six=[2001:db8::1]', 'host.docker.internal:host-gateway']",
		want:     `Pod/web: {spec: {hostAliases: [{ip: 192.0.2.1, hostnames: [b, a]}, {ip: '2001:db8::1', hostnames: [six]}]}}`,
		problems: `4: services.web.extra_hosts[host.docker.internal]: host-gateway is no address that is known now: the name host.docker.internal is left out`,
	},
	{name: "a host name", service: "hostname: Box", want: `Pod/web: {spec: {hostname: box, hostnameOverride: null}}`},
	{name: "a full host name", service: "hostname: box.example.com", want: `Pod/web: {spec: {hostname: null, hostnameOverride: box.example.com}}`},
	{
		name: "a domain", service: "hostname: box\ndomainname: example.com", want: `Pod/web: {spec: {hostnameOverride: box.example.com}}`,
		problems: `5: services.web.domainname: the host name is box.example.com as a whole`,
	},
	{name: "no host name", service: "hostname: my_box", problems: `4: services.web.hostname: my_box is no DNS name: the host name is web`},
	{
		name: "resolver", service: "dns: 192.0.2.53\ndns_search: [example.com, .]\ndns_opt: ['ndots:2', rotate]",
		want: `Pod/web: {spec: {dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.53], searches: [example.com], options: [{name: ndots, value: '2'}, {name: rotate, value: null}]}}}`,
	},
	{name: "search domains", service: "dns_search: example.com", want: `Pod/web: {spec: {dnsPolicy: null, dnsConfig: {searches: [example.com], nameservers: null}}}`},
	{
		name: "several networks", service: "networks: {front: {ipv4_address: 10.0.0.2}, back: {}}",
		more: "networks:\n  front: {internal: true}\n  back: {driver: macvlan}\n  unused: {external: true}\n",
		problems: `4: services.web.networks.front.ipv4_address: pods get their addresses from the network: use the name web
5: networks: all pods are in one network, so services reach each other also where back and front keep them apart
6: networks.front.internal: pods reach what is outside, as all pods do
7: networks.back.driver: the driver macvlan is left out: see --cni-conf-dir for other networks`,
	},
	{name: "one network", service: "networks: [mine]", more: "networks: {mine: {driver: bridge}}\n"},
	{
		name: "a network of others", service: "networks: [theirs]", more: "networks:\n  theirs: {external: true}\n",
		problems: `6: networks.theirs: is not created by these files: only the pods here are in it`,
	},
}
