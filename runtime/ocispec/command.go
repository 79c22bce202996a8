package ocispec

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// command returns the arguments of the container's process. The container's command
// replaces the image's ENTRYPOINT and drops its CMD, the args replace CMD (containerd's
// WithProcessArgs). $(NAME) in either is replaced by a variable that the manifest
// declares, with its value in env, the container's final environment.
func command(c Context, container *v1.Container, env []string) ([]string, error) {
	lookup, err := references(c, container, env)
	if err != nil {
		return nil, err
	}
	command, args := expandAll(container.Command, lookup), expandAll(container.Args, lookup)
	if len(command) == 0 {
		if len(args) == 0 {
			args = c.Image.Cmd
		}
		command = c.Image.Entrypoint
	}
	if len(command)+len(args) == 0 {
		return nil, failure.CreateErrorf("no command specified: neither container %q nor image %q has one", container.Name, c.Image.Ref)
	}
	all := make([]string, 0, len(command)+len(args))
	return append(append(all, command...), args...), nil
}

// references returns a lookup of the variables that the manifest declares: the kubelet does
// not expand $(PATH) when PATH comes from the image.
func references(c Context, container *v1.Container, env []string) (func(string) (string, bool), error) {
	own, err := declared(c, container)
	if err != nil {
		return nil, err
	}
	final := LookupEnv(env)
	return func(name string) (string, bool) {
		if _, ok := own.get(name); !ok {
			return "", false
		}
		return final(name)
	}, nil
}

func expandAll(list []string, lookup func(string) (string, bool)) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, Expand(s, lookup))
	}
	return out
}
