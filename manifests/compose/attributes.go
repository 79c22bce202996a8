package compose

import (
	"reflect"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// convertedAttributes are those of a service of which the other files of this package make something, or say why not.
var convertedAttributes = strings.Fields(`
	annotations build cap_add cap_drop command configs container_name cpu_period cpu_quota cpu_shares cpus depends_on deploy dns dns_opt
	dns_search domainname entrypoint environment expose extra_hosts gpus group_add healthcheck hostname image init ipc labels links logging
	mem_limit mem_reservation memswap_limit network_mode networks pid platform ports post_start pre_start pre_stop privileged provider
	pull_policy read_only restart runtime scale secrets security_opt shm_size stdin_open stop_grace_period stop_signal sysctls tmpfs tty user
	volumes volumes_from working_dir`)

// neutralAttributes are those that change nothing in what "docker compose up" starts on Linux, or that the loader has applied.
var neutralAttributes = strings.Fields(`
	attach develop env_file extends label_file profiles isolation pull_refresh_after name`)

// lostAttributes are those of which nothing is left, and what is instead.
var lostAttributes = map[string]string{
	"blkio_config":        "access to disks is not limited",
	"cgroup":              "a container has a cgroup namespace of its own",
	"cgroup_parent":       "the cgroup is one below that of all pods",
	"cpu_count":           "only Windows has this limit: use cpus",
	"cpu_percent":         "only Windows has this limit: use cpus",
	"cpu_rt_period":       "containers have no real-time scheduling",
	"cpu_rt_runtime":      "containers have no real-time scheduling",
	"cpuset":              "containers use all processors",
	"credential_spec":     "is for Windows: it is left out",
	"device_cgroup_rules": "is left out: only privileged containers have devices without a CDI specification",
	"devices":             "are left out: request devices of a CDI specification, or make the container privileged",
	"dockerfile":          "nothing here builds images",
	"external_links":      "only services of these files are found by name",
	"log_driver":          "logs are files below --log-dir",
	"log_opt":             "logs are files below --log-dir",
	"mac_address":         "pods get their addresses from the network",
	"mem_swappiness":      "pods do not swap unless --swap says so",
	"models":              "models are left out",
	"net":                 "is left out: use network_mode",
	"oom_kill_disable":    "a container that exceeds its memory is killed",
	"oom_score_adj":       "follows from the resources of the pod, as a kubelet does it",
	"pids_limit":          "the number of processes is limited for all pods alike, by --pod-pids-limit",
	"storage_opt":         "the size of the root file system is not limited",
	"ulimits":             "containers have the limits of the container engine",
	"umask":               "containers have the usual umask",
	"use_api_socket":      "there is no socket of docker: it is left out",
	"userns_mode":         "user namespaces are those of --user-namespaces",
	"uts":                 "a pod has a host name of its own",
	"volume_driver":       "volumes without a name are directories of the machine",
}

// checkAttributes warns about the attributes of a service of which nothing is left.
func (c *converter) checkAttributes(s *types.ServiceConfig) {
	for name, set := range attributes(reflect.ValueOf(s).Elem()) {
		text, lost := lostAttributes[name]
		switch {
		case !set || slices.Contains(convertedAttributes, name) || slices.Contains(neutralAttributes, name):
		case name == "userns_mode" && s.UserNSMode == "host": // as here
		case name == "pids_limit" && s.PidsLimit < 0: // no limit
		case lost:
			c.warn(field(s, name), "%s", text)
		default:
			c.warn(field(s, name), "is unknown here: it is left out")
		}
	}
	c.checkLogging(s)
}

// checkLogging warns about logs that are expected elsewhere.
func (c *converter) checkLogging(s *types.ServiceConfig) {
	switch l := s.Logging; {
	case l == nil:
	case l.Driver == "journald":
		c.warn(field(s, "logging"), "logs are files; with --container-logs journal, the journal has them as well")
	case l.Driver != "" && l.Driver != "json-file" && l.Driver != "local":
		c.warn(field(s, "logging"), "logs are files below --log-dir, not those of the driver %s", l.Driver)
	}
}

// attributes returns the attributes by the names that they have in files, and whether they are set.
func attributes(v reflect.Value) map[string]bool {
	all := map[string]bool{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline") && v.Field(i).Kind() == reflect.Struct:
			for name, set := range attributes(v.Field(i)) {
				all[name] = set
			}
		case name != "-" && !strings.HasPrefix(name, "#") && name != "":
			all[name] = !v.Field(i).IsZero()
		}
	}
	return all
}
