package compose

var orderCases = []fieldCase{
	{
		name: "conditions", service: "depends_on: {db: {condition: service_healthy}, migrate: {condition: service_completed_successfully}, cache: {condition: service_started}}",
		more: `  db: {image: postgres, healthcheck: {test: pg_isready}}
  migrate: {image: m}
  cache: {image: redis}
`,
		want: `Pod/web: {metadata: {annotations: {runonce/depends-on: 'cache:running, db, migrate:completed'}}}`,
	},
	{
		name: "what is different", service: "depends_on:\n  db: {condition: service_healthy, restart: true}\n  maybe: {condition: service_started, required: false}\n  off: {condition: service_started, required: false}\n  none: {condition: service_started}",
		more: `  db: {image: postgres}
  maybe: {image: x}
  off: {image: x, profiles: [debug]}
  none: {image: x, scale: 0}
`,
		want: `{Pod/web: {metadata: {annotations: {runonce/depends-on: 'db, maybe:running'}}}, Pod/none: null, Service/none: null, Pod/off: null}`,
		problems: `5: services.web.depends_on.db: db has no health check in these files: with --healthcheck, that of its image counts, and without it db is ready once it runs
5: services.web.depends_on.db.restart: web is not restarted with db
6: services.web.depends_on.maybe: is required here: if maybe fails, web does not start
8: services.web.depends_on.none: none has no replicas: nothing waits for it`,
	},
	{
		name: "within a pod", service: "depends_on: {db: {condition: service_healthy}}\nnetwork_mode: service:db", more: "  db: {image: postgres, healthcheck: {test: x}}\n",
		want:     `Pod/db: {metadata: {annotations: null}}`,
		problems: `4: services.web.depends_on.db: they are containers of one pod, which start at the same time`,
	},
	{
		name: "completed and restarted always", service: "depends_on: {m: {condition: service_completed_successfully}}", more: "  m: {image: x, restart: always}\n",
		want:     `Pod/m: {spec: {restartPolicy: OnFailure}}`,
		problems: `5: services.m.restart: others wait until it has completed, so it is restarted only if it fails`,
	},
	{name: "restarted always", service: "restart: unless-stopped", want: `Pod/web: {spec: {restartPolicy: Always}}`},
	{name: "restarted on failure", service: "restart: on-failure", want: `{Pod/web: {spec: {restartPolicy: OnFailure}}, Job/web: null}`},
	{
		name: "restarted a few times", service: "restart: on-failure:3\nports: ['80']",
		want: `
Job/web: {metadata: {annotations: null}, spec: {backoffLimit: 3, completions: 1, parallelism: 1,
  template: {metadata: {labels: {app: web}, annotations: {runonce/publish: 80/tcp=auto}}, spec: {restartPolicy: OnFailure}}}}
Pod/web: null
Service/web: {spec: {selector: {app: web}}}`,
	},
	{
		name: "the policy of deploy counts", service: "restart: always\ndeploy: {restart_policy: {condition: on-failure, max_attempts: 2, delay: 5s}}",
		want:     `Job/web: {spec: {backoffLimit: 2}}`,
		problems: `5: services.web.deploy.restart_policy: delay and window have no effect: restarts are delayed as a kubelet does it`,
	},
	{
		name: "any number of restarts", service: "deploy: {restart_policy: {max_attempts: 2}}", want: `Pod/web: {spec: {restartPolicy: Always}}`,
		problems: `4: services.web.deploy.restart_policy.max_attempts: restarts have no limit of their own; see --max-restarts`,
	},
	{
		name: "several that run once", service: "deploy: {replicas: 3}",
		want: `Job/web: {spec: {completions: 3, parallelism: 3, backoffLimit: 0, template: {spec: {restartPolicy: Never}}}}`,
	},
	{
		name: "several that are restarted", service: "restart: on-failure\nscale: 2", want: `Job/web: {spec: {completions: 2, backoffLimit: 2147483647}}`,
	},
	{
		name: "a health check", service: "healthcheck: {test: [CMD, curl, -f, 'http://localhost/$$(x)'], interval: 10s, timeout: 1500ms, retries: 5}",
		want: `Pod/web: {spec: {containers: [{startupProbe: null, livenessProbe: null,
  readinessProbe: {exec: {command: [curl, -f, 'http://localhost/$$(x)']}, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 5}}]}}`,
		problems: `4: services.web.healthcheck.timeout: 1.5s is rounded up to 2 seconds`,
	},
	{
		name: "a health check with a start period", service: "healthcheck: {test: 'true || false', interval: 10s, retries: 2, start_period: 31s, start_interval: 2s}",
		want: `Pod/web: {spec: {containers: [{readinessProbe: {exec: {command: [/bin/sh, -c, 'true || false']}, periodSeconds: 10, timeoutSeconds: 30, failureThreshold: 2},
  startupProbe: {exec: {command: [/bin/sh, -c, 'true || false']}, periodSeconds: 2, failureThreshold: 26}}]}}`,
	},
	{name: "no health check", service: "healthcheck: {disable: true}", want: `Pod/web: {spec: {containers: [{readinessProbe: null}]}}`},
	{name: "no health check in another way", service: "healthcheck: {test: [NONE]}", want: `Pod/web: {spec: {containers: [{readinessProbe: null}]}}`},
	{
		name: "intervals of the image's health check", service: "healthcheck: {interval: 3s}", want: `Pod/web: {spec: {containers: [{readinessProbe: null}]}}`,
		problems: `4: services.web.healthcheck: has no test: with --healthcheck, that of the image is used, at the intervals of the image`,
	},
}
