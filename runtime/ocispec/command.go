package ocispec

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// command returns the arguments of the container's process. The container's command
// replaces the image's ENTRYPOINT and drops its CMD, the args replace CMD (containerd's
// WithProcessArgs). $(NAME) in either is replaced by a variable that the manifest declares:
// the kubelet does not expand $(PATH) when PATH comes from the image.
func command(c Context, container *v1.Container) ([]string, error) {
	own, err := declared(c, container)
	if err != nil {
		return nil, err
	}
	command, args := ExpandAll(container.Command, own), ExpandAll(container.Args, own)
	if len(command) == 0 {
		if len(args) == 0 {
			args = c.Image.Cmd
		}
		command = c.Image.Entrypoint
		if slices.Equal(command, []string{""}) { // what builds write to drop the one of a base image
			command = nil
		}
	}
	if len(command)+len(args) == 0 {
		return nil, failure.CreateErrorf("no command specified: neither container %q nor image %q has one", container.Name, c.Image.Ref)
	}
	return slices.Concat(command, args), nil
}

// ExpandAll expands each string of the list by KEY=VALUE strings.
func ExpandAll(list, env []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, Expand(s, LookupEnv(env)))
	}
	return out
}
