package preflight

import (
	"bytes"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
)

// loadedProfiles lists the profiles that the kernel has, with their modes: "name (enforce)".
const loadedProfiles = "sys/kernel/security/apparmor/profiles"

// appArmor returns why the container cannot have the profile. That the machine has no
// AppArmor at all is the kubelet's own ground for a rejection and not repeated here.
func (m *Machine) appArmor(profile *v1.AppArmorProfile, container string) error {
	enabled, err := fs.ReadFile(m.Files, "sys/module/apparmor/parameters/enabled")
	if profile == nil || profile.Type == v1.AppArmorProfileTypeUnconfined || err != nil || !bytes.HasPrefix(enabled, []byte("Y")) {
		return nil
	}
	if !m.AppArmor {
		return fmt.Errorf("container %q: AppArmor profile %s: /sys/kernel/security/apparmor or the program apparmor_parser is not there", container, profile.Type)
	}
	if profile.Type != v1.AppArmorProfileTypeLocalhost {
		return nil
	}
	loaded, err := fs.ReadFile(m.Files, loadedProfiles)
	if err != nil {
		return fmt.Errorf("container %q: looking for AppArmor profiles: %w", container, err)
	}
	name := ""
	if profile.LocalhostProfile != nil {
		name = *profile.LocalhostProfile
	}
	for line := range bytes.Lines(loaded) {
		if bytes.HasPrefix(line, []byte(name+" (")) {
			return nil
		}
	}
	return fmt.Errorf("container %q: AppArmor profile %q is not loaded: load it with apparmor_parser", container, name)
}
