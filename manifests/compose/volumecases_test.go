package compose

var volumeCases = []fieldCase{
	{
		name: "a named volume", service: "volumes: ['data:/data:ro', {type: volume, source: other, target: /other, volume: {subpath: a}}]",
		more: "volumes: {data: , other: {name: real}, unused: }\n",
		want: `
Pod/web: {spec: {containers: [{volumeMounts: [{name: volume-data, mountPath: /data, readOnly: true}, {name: volume-real, mountPath: /other, subPath: a}]}],
  volumes: [{name: volume-data, persistentVolumeClaim: {claimName: data}}, {name: volume-real, persistentVolumeClaim: {claimName: real}}]}}
PersistentVolumeClaim/data: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
PersistentVolumeClaim/real: {}
PersistentVolumeClaim/unused: null`,
	},
	{
		name: "a volume of docker", service: "volumes: ['data:/data']", more: "volumes:\n  data: {external: true}\n", want: `PersistentVolumeClaim/data: {}`,
		problems: `6: volumes.data: a volume of docker is not used: the data have to be copied to the claim data`,
	},
	{
		name: "drivers", service: "volumes: ['nfs:/a', 'bound:/b', 'memory:/c']",
		more: `volumes:
  nfs: {driver_opts: {type: nfs4, o: "addr=192.0.2.1,ro,nolock", device: ":/export"}}
  bound: {driver: local, driver_opts: {type: none, o: bind, device: /srv}}
  memory: {driver_opts: {type: tmpfs, o: "size=1m,uid=5", device: tmpfs}}
`,
		want: `
Pod/web: {spec: {volumes: [{nfs: {server: 192.0.2.1, path: /export, readOnly: true}}, {hostPath: {path: /srv}}, {emptyDir: {medium: Memory, sizeLimit: 1Mi}}]}}
PersistentVolumeClaim/nfs: null`,
		problems: `6: volumes.nfs.driver_opts.o: the option nolock is left out
8: volumes.memory.driver_opts: the option uid=5 is left out`,
	},
	{
		name: "drivers that cannot be", service: "volumes: ['one:/a', 'two:/b', 'three:/c']",
		more: "volumes:\n  one: {driver: rexray}\n  two: {driver_opts: {type: ext4, device: /dev/sda1}}\n  three: {driver_opts: {type: nfs, device: x}}\n",
		problems: `error: 6: volumes.one.driver: volumes of the driver rexray cannot be mounted: mount it on the machine, and use its path
error: 7: volumes.two.driver_opts: a file system of type "ext4" cannot be mounted: mount it on the machine, and use its path
error: 8: volumes.three.driver_opts: names no server (o: addr=HOST) or no directory (device: ":/DIR") of NFS`,
	},
	{
		name:    "paths of the machine",
		service: "volumes: ['./html:/html', './nginx.conf:/etc/nginx.conf:ro', './new:/new', '/run/app.sock:/s', '/dev/null:/n', {type: bind, source: /gone, target: /g, bind: {create_host_path: false}}]",
		want: `
Pod/web: {spec: {volumes: [{hostPath: {path: DIR/html, type: DirectoryOrCreate}}, {hostPath: {path: DIR/nginx.conf, type: File}}, {hostPath: {path: DIR/new, type: DirectoryOrCreate}},
    {hostPath: {path: /run/app.sock, type: Socket}}, {hostPath: {path: /dev/null, type: CharDevice}}, {hostPath: {path: /gone, type: null}}],
  containers: [{volumeMounts: [{mountPath: /html, readOnly: null}, {mountPath: /etc/nginx.conf, readOnly: true}, {mountPath: /new}, {mountPath: /s}, {mountPath: /n}, {mountPath: /g}]}]}}`,
	},
	{
		name:    "how a path is mounted",
		service: "privileged: true\nvolumes:\n- /a:/a:rshared\n- /b:/b:rslave\n- /c:/c:Z\n- {type: bind, source: /d, target: /d, read_only: true, bind: {recursive: readonly}}\n- /var/run/docker.sock:/d.sock",
		want: `Pod/web: {spec: {containers: [{volumeMounts: [{mountPropagation: Bidirectional}, {mountPropagation: HostToContainer}, {mountPropagation: null},
  {recursiveReadOnly: Enabled, readOnly: true}, {mountPath: /d.sock}]}]}}`,
		problems: `8: services.web.volumes[/c]: the files keep their SELinux labels
10: services.web.volumes[/d.sock]: docker, if it runs here, knows nothing of pods`,
	},
	{
		name: "volumes without a name", service: "volumes: ['/cache', '/src:/app', 'modules:/app/node_modules']", more: "volumes: {modules: }\n",
		want: `Pod/web: {spec: {volumes: [{name: volume-cache, emptyDir: {}}, {hostPath: {path: /src}}, {persistentVolumeClaim: {claimName: modules}}]}}`,
		problems: `4: services.web.volumes[/app/node_modules]: is empty at first, without the files that the image has there
4: services.web.volumes[/cache]: is empty at first, without the files that the image has there, and lasts as long as the pod`,
	},
	{
		name: "memory", service: "tmpfs: ['/run:size=64m,mode=755,noexec', /tmp]\nshm_size: 256m\nvolumes: [{type: tmpfs, target: /t, tmpfs: {size: 1m, mode: 448}}]",
		want: `Pod/web: {spec: {volumes: [{emptyDir: {medium: Memory, sizeLimit: 1Mi, mode: 448}}, {emptyDir: {medium: Memory, sizeLimit: 64Mi, mode: 493}}, {emptyDir: {medium: Memory, sizeLimit: null}},
    {name: shm, emptyDir: {medium: Memory, sizeLimit: 256Mi}}],
  containers: [{volumeMounts: [{mountPath: /t}, {mountPath: /run, bindMountOptions: [noexec]}, {mountPath: /tmp}, {mountPath: /dev/shm, name: shm}]}]}}`,
	},
	{
		name: "options of tmpfs", service: "tmpfs: '/run:size=much,mode=rwx,gid=5,ro'", want: `Pod/web: {spec: {containers: [{volumeMounts: [{readOnly: true}]}]}}`,
		problems: `4: services.web.tmpfs[/run]: mode=rwx is no mode: it is left out
4: services.web.tmpfs[/run]: size=much is no size: it is left out
4: services.web.tmpfs[/run]: the option gid=5 is left out`,
	},
	{
		name: "an image", service: "volumes: [{type: image, source: alpine, target: /i, image: {subpath: etc}}]",
		want: `Pod/web: {spec: {containers: [{volumeMounts: [{mountPath: /i, subPath: etc, readOnly: true}]}], volumes: [{image: {reference: alpine, pullPolicy: IfNotPresent}}]}}`,
	},
	{name: "a pipe", service: "volumes: [{type: npipe, source: /p, target: /p}]", problems: `error: 4: services.web.volumes[/p]: a volume of type npipe cannot be mounted`},
	{
		name: "volumes of others", service: "volumes_from: ['db:ro']", more: "  db: {image: postgres, volumes: ['pg:/pg', '/anonymous']}\nvolumes: {pg: }\n",
		want: `Pod/web: {spec: {containers: [{volumeMounts: [{mountPath: /pg, readOnly: true}]}], volumes: [{persistentVolumeClaim: {claimName: pg}}]}}`,
		problems: `4: services.web.volumes_from[db]: /anonymous of db has no name, so it is not shared: make it a named volume
5: services.db.volumes[/anonymous]: is empty at first, without the files that the image has there, and lasts as long as the pod`,
	},
	{
		name: "volumes of a container", service: "volumes_from: ['container:x']",
		problems: `error: 4: services.web.volumes_from[container]: container:x: only volumes of services of these files can be shared`,
	},
	{
		name: "configs", service: "configs: [site, {source: site, target: etc/site.conf, mode: 0440, uid: '33', gid: '33'}, bin]",
		more: "configs:\n  site: {content: hello}\n  bin: {file: ./binary}\n",
		want: `
Pod/web: {spec: {containers: [{volumeMounts: [{mountPath: /site, subPath: site, readOnly: true}, {mountPath: /etc/site.conf, subPath: site}, {mountPath: /bin}]}],
  volumes: [{configMap: {name: site, items: [{key: site, path: site, mode: 292}]}}, {configMap: {items: [{mode: 288, user: 33}]}}, {}]}}
ConfigMap/site: {data: {site: hello}}
ConfigMap/bin: {binaryData: {bin: //4=}, data: null}`,
		problems: `4: services.web.configs[site]: the file belongs to the group of root, not to 33`,
	},
	{
		name: "secrets", service: "secrets: [pw, {source: pw, target: /etc/pw, mode: 0400}, env]",
		more: "secrets:\n  pw: {file: ./secret.txt}\n  env: {environment: HOME}\n",
		want: `
Pod/web: {spec: {containers: [{volumeMounts: [{mountPath: /run/secrets/pw, subPath: pw, readOnly: true}, {mountPath: /etc/pw}, {mountPath: /run/secrets/env}]}],
  volumes: [{secret: {secretName: pw, items: [{mode: 292}]}}, {secret: {items: [{mode: 256}]}}, {}]}}
Secret/pw: {stringData: {pw: hidden}}`,
	},
	{
		name: "configs and secrets of others", service: "configs: [c]\nsecrets: [s]", more: "configs:\n  c: {external: true, name: real}\nsecrets:\n  s: {external: true}\n",
		want: `{ConfigMap/real: null, Secret/s: null, Pod/web: {spec: {volumes: [{configMap: {name: real}}, {secret: {secretName: s}}]}}}`,
		problems: `7: configs.c: is not in these files: give the ConfigMap real with the key c when you run the pods
9: secrets.s: is not in these files: give it when you run the pods, with --secret s:s=file:PATH`,
	},
	{
		name: "files that cannot be used", service: "configs: [gone, large, unset]",
		more: "configs:\n  gone: {file: ./gone}\n  large: {file: ./large}\n  unset: {environment: UNSET_IN_TESTS}\n",
		problems: `error: 6: configs.gone.file: cannot be read: open DIR/gone: file does not exist
error: 7: configs.large.file: DIR/large is larger than 1 MiB, which no ConfigMap or Secret may be: mount it as a volume
error: 8: configs.unset.environment: the variable UNSET_IN_TESTS is not set`,
	},
}
