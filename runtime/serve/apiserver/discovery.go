package apiserver

import (
	"net/http"
	"slices"

	"github.com/munnerz/goautoneg"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupVersions returns those of all resources, in order.
func (s *server) groupVersions() (all []schema.GroupVersion) {
	for _, r := range s.resources {
		if !slices.Contains(all, r.gv()) {
			all = append(all, r.gv())
		}
	}
	return all
}

// api answers with the versions of the group without a name.
func (s *server) api(w http.ResponseWriter, r *http.Request) {
	if wantsAggregated(r) {
		s.aggregated(w, r, func(gv schema.GroupVersion) bool { return gv.Group == "" })
		return
	}
	s.write(w, r, http.StatusOK, &metav1.APIVersions{
		Versions:                   []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
	})
}

// apis answers with the groups that have names.
func (s *server) apis(w http.ResponseWriter, r *http.Request) {
	named := func(gv schema.GroupVersion) bool { return gv.Group != "" }
	if wantsAggregated(r) {
		s.aggregated(w, r, named)
		return
	}
	list := &metav1.APIGroupList{}
	for _, gv := range s.groupVersions() {
		if named(gv) {
			list.Groups = append(list.Groups, apiGroup(gv))
		}
	}
	s.write(w, r, http.StatusOK, list)
}

func apiGroup(gv schema.GroupVersion) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// describe answers with a group, or with the resources of a version.
func (s *server) describe(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	if gv.Version != "" {
		s.resourceList(w, r, gv)
		return
	}
	for _, known := range s.groupVersions() {
		if known.Group != "" && known.Group == gv.Group {
			group := apiGroup(known)
			s.write(w, r, http.StatusOK, &group)
			return
		}
	}
	s.fail(w, r, notFound())
}

// resourceList answers with the resources of a group's version.
func (s *server) resourceList(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for _, one := range s.resources {
		if one.gv() != gv {
			continue
		}
		of := one.APIResource
		of.Group, of.Version = "", ""
		list.APIResources = append(list.APIResources, of)
		for _, sub := range one.subresources {
			part := sub.APIResource
			part.Name, part.Namespaced = of.Name+"/"+sub.Name, of.Namespaced
			list.APIResources = append(list.APIResources, part)
		}
	}
	if len(list.APIResources) == 0 {
		s.fail(w, r, notFound())
		return
	}
	s.write(w, r, http.StatusOK, list)
}

// aggregatedType is the media type of a discovery that has all in one answer.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func wantsAggregated(r *http.Request) bool {
	return slices.ContainsFunc(goautoneg.ParseAccept(r.Header.Get("Accept")), func(c goautoneg.Accept) bool {
		return c.Type == "application" && c.SubType == "json" && c.Params["g"] == discoveryv2.GroupName && c.Params["v"] == "v2" && c.Params["as"] == "APIGroupDiscoveryList"
	})
}

// aggregated answers with all resources of the chosen groups (k8s.io/apiserver/pkg/endpoints/discovery/aggregated).
func (s *server) aggregated(w http.ResponseWriter, r *http.Request, chosen func(schema.GroupVersion) bool) {
	list := discoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: discoveryv2.SchemeGroupVersion.String()}}
	for _, gv := range s.groupVersions() {
		if !chosen(gv) {
			continue
		}
		version := discoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
		for _, one := range s.resources {
			if one.gv() == gv {
				version.Resources = append(version.Resources, discovered(one))
			}
		}
		list.Items = append(list.Items, discoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []discoveryv2.APIVersionDiscovery{version},
		})
	}
	w.Header().Set("Content-Type", aggregatedType)
	s.writePlain(w, r, list)
}

// discovered returns a resource as an aggregated discovery has it.
func discovered(r *resource) discoveryv2.APIResourceDiscovery {
	kind := func(of schema.GroupVersionKind) *metav1.GroupVersionKind { return new(metav1.GroupVersionKind(of)) }
	scope := discoveryv2.ScopeCluster
	if r.Namespaced {
		scope = discoveryv2.ScopeNamespace
	}
	d := discoveryv2.APIResourceDiscovery{
		Resource: r.Name, ResponseKind: kind(r.kind()), Scope: scope, SingularResource: r.SingularName, Verbs: r.Verbs,
		ShortNames: r.ShortNames, Categories: r.Categories,
	}
	for _, sub := range r.subresources {
		of := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: sub.Kind}
		if sub.Version != "" {
			of.Group, of.Version = sub.Group, sub.Version
		}
		d.Subresources = append(d.Subresources, discoveryv2.APISubresourceDiscovery{
			Subresource: sub.Name, ResponseKind: kind(of), Verbs: sub.Verbs,
		})
	}
	return d
}
