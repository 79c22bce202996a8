// Package compose converts the files of docker compose to Kubernetes manifests that mean the same to runonce, and says what
// they cannot say.
package compose

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Options of a conversion.
type Options struct {
	// Namespace is that of the objects; "" leaves it to whoever runs them.
	Namespace string
	// Images are those of services, by name, instead of what the files say.
	Images map[string]string
	// Machine has the files that configs and secrets are made of, and those that are mounted. Its paths have no slash in front.
	Machine fs.FS
}

// File is a file of manifests.
type File struct {
	Name    string // without a directory
	Objects []runtime.Object
	Secret  bool // only its owner may read it
}

// Convert returns the manifests of a project: one file per service, and those of the objects that several services may use. If a
// problem is fatal, there are none.
func Convert(p *Project, o Options) ([]File, Problems) {
	c := &converter{
		Project: p, options: o, problems: slices.Clone(p.problems),
		claims: map[string]runtime.Object{}, configMaps: map[string]runtime.Object{}, secrets: map[string]runtime.Object{}, classes: map[string]runtime.Object{},
	}
	c.setNames()
	c.checkImages()
	c.checkProject()
	c.findWaitedFor()
	files := make([]File, 0, len(p.Services)+3)
	for _, u := range c.units() {
		if objects := c.unit(u); len(objects) > 0 {
			files = append(files, File{Name: c.names[u.owner().Name] + ".yaml", Objects: objects})
		}
	}
	files = append(files, c.shared()...)
	problems := c.problems.sorted()
	if len(problems.Fatal()) > 0 {
		return nil, problems
	}
	return files, problems
}

// converter converts one project.
type converter struct {
	*Project
	options  Options
	problems Problems
	names    map[string]string // of the objects of services
	pods     map[string]string // the pods that services are in
	aliases  map[string]string // names of more Services, and to which service they lead
	// waitedFor are the services that others want to have completed.
	waitedFor map[string]bool

	// The names of other objects, by the keys in the files.
	claimNames, configNames, secretNames map[string]string
	// The objects that several services may use, by their names.
	claims, configMaps, secrets, classes map[string]runtime.Object
}

// warn says what is done instead of what is at the place.
func (c *converter) warn(at place, format string, args ...any) { c.report(false, at, format, args) }

// fail says why the project cannot be converted.
func (c *converter) fail(at place, format string, args ...any) { c.report(true, at, format, args) }

func (c *converter) report(fatal bool, at place, format string, args []any) {
	file, line := c.sources.find(at)
	c.problems = append(c.problems, Problem{File: file, Line: line, Field: at.String(), Message: fmt.Sprintf(format, args...), Fatal: fatal})
}

// meta returns the metadata of an object.
func (c *converter) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: c.options.Namespace}
}

// checkImages refuses services without an image: there is no builder.
func (c *converter) checkImages() {
	for _, name := range sorted(c.options.Images) {
		s, ok := c.Services[name]
		if !ok {
			c.fail(nil, "--image %s=%s: there is no such service", name, c.options.Images[name])
			continue
		}
		s.Image, s.Build = c.options.Images[name], nil
		for i := range s.PreStart {
			if s.PreStart[i].Image == "" {
				s.PreStart[i].Image = s.Image
			}
		}
		c.Services[name] = s
	}
	for _, name := range sorted(c.Services) {
		s, at := c.Services[name], place{"services", name}
		switch {
		case s.Provider != nil:
			c.fail(at.at("provider"), "service %q: programs of docker compose are not run here: give an image instead", name)
		case s.Image == "":
			tag := c.Name + "-" + name
			c.fail(at.at("build"), "service %q has no image, and nothing here builds one: build it (docker compose build %s), save it for --images-dir (docker save -o images/%s.tar %s), and convert with --image %s=%s",
				name, name, name, tag, name, tag)
		case !isImage(s.Image):
			c.fail(at.at("image"), "service %q: %q is no name of an image", name, s.Image)
		case s.Build != nil:
			c.warn(at.at("build"), "nothing here builds %s: it has to be in a registry, or in an archive of --images-dir", s.Image)
		}
	}
}

func isImage(name string) bool {
	_, err := reference.ParseDockerRef(name)
	return err == nil
}

// checkProject warns about what the project has besides services.
func (c *converter) checkProject() {
	for _, name := range sorted(c.Jobs) {
		c.warn(place{"jobs", name}, "jobs are left out: make it a service with a profile")
	}
	for _, name := range sorted(c.Models) {
		c.warn(place{"models", name}, "models are left out")
	}
	c.checkNetworks()
}

// field returns the place of a field of a service.
func field(s *types.ServiceConfig, keys ...string) place {
	return place{"services", s.Name}.at(keys...)
}
