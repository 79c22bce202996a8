package validation

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// setAppArmorProfiles sets the AppArmor fields of a pod that has the deprecated annotations, as
// the API server does (pkg/registry/core/pod/strategy.go, applyAppArmorVersionSkew).
func setAppArmorProfiles(p *v1.Pod) {
	for _, c := range podspec.Containers(p) {
		profile := appArmorProfile(p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name])
		if profile == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &v1.SecurityContext{}
		}
		if c.SecurityContext.AppArmorProfile == nil {
			c.SecurityContext.AppArmorProfile = profile
		}
	}
}

func appArmorProfile(annotation string) *v1.AppArmorProfile {
	local, isLocal := strings.CutPrefix(annotation, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case isLocal && local != "":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	case annotation == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case annotation == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	return nil
}
