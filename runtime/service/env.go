package service

import (
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// environment returns the variables about the Services for the containers of a pod, as the kubelet sets them
// (pkg/kubelet/envvars.FromServices): for those of its namespace that have a cluster IP, unless the pod's
// enableServiceLinks is false.
func environment(services []*v1.Service, pod *v1.Pod) (all []v1.EnvVar) {
	if links := pod.Spec.EnableServiceLinks; links != nil && !*links {
		return nil
	}
	for _, svc := range services {
		if svc.Namespace == pod.Namespace && hasAddresses(svc) && len(svc.Spec.Ports) > 0 {
			all = append(all, variablesOf(svc)...)
		}
	}
	return all
}

func variablesOf(svc *v1.Service) (all []v1.EnvVar) {
	prefix := variableName(svc.Name)
	set := func(name, value string) { all = append(all, v1.EnvVar{Name: prefix + name, Value: value}) }
	set("_SERVICE_HOST", svc.Spec.ClusterIP)
	set("_SERVICE_PORT", strconv.Itoa(int(svc.Spec.Ports[0].Port)))
	for _, p := range svc.Spec.Ports {
		if p.Name != "" {
			set("_SERVICE_PORT_"+variableName(p.Name), strconv.Itoa(int(p.Port)))
		}
	}
	// Those of Docker's links.
	for i, p := range svc.Spec.Ports {
		protocol, port := strings.ToLower(string(p.Protocol)), strconv.Itoa(int(p.Port))
		url := protocol + "://" + net.JoinHostPort(svc.Spec.ClusterIP, port)
		if i == 0 {
			set("_PORT", url)
		}
		name := "_PORT_" + port + "_" + strings.ToUpper(protocol)
		set(name, url)
		set(name+"_PROTO", protocol)
		set(name+"_PORT", port)
		set(name+"_ADDR", svc.Spec.ClusterIP)
	}
	return all
}

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
