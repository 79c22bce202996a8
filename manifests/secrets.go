package manifests

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretKey is a key of a Secret whose value is not in a manifest.
type SecretKey struct {
	Namespace string // "" for that of objects which name none
	Name, Key string
	// Title is what errors call it. It must not have the value.
	Title string
	// Path is that of the file with the value, "" for none. Fingerprint looks at it.
	Path string
	Read func() ([]byte, error)
}

// addSecrets makes or completes the Secrets of the options.
func (r *reader) addSecrets() error {
	var all Diagnostics
	for _, k := range r.options.Secrets {
		value, err := k.Read()
		if err != nil {
			all = append(all, Diagnostic{Message: k.Title + ": " + err.Error(), Severity: SeverityError})
			continue
		}
		secret := r.secret(k)
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[k.Key] = value
		for _, e := range r.rules.Object(secret) {
			all = append(all, Diagnostic{Message: fmt.Sprintf("%s: %s", k.Title, e.Error()), Severity: SeverityError})
		}
	}
	return all.Err()
}

// secret returns the Secret of the input that gets the key, or a new one. One with registry credentials is of
// the type that has them.
func (r *reader) secret(k SecretKey) *v1.Secret {
	id := object{kindSecret, r.orDefault(k.Namespace), k.Name}
	if s, ok := r.set.Secret(id.namespace, id.name); ok {
		return s
	}
	s := &v1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kindSecret},
		ObjectMeta: metav1.ObjectMeta{Namespace: id.namespace, Name: id.name},
	}
	if k.Key == v1.DockerConfigJsonKey {
		s.Type = v1.SecretTypeDockerConfigJson
	}
	r.set.objects[id] = s
	if e := r.firstWithPods(id.namespace); e != nil {
		e.setOrigin(s) // it is removed with the objects from there
	}
	return s
}

// firstWithPods returns the first document with pods in the namespace, nil for none.
func (r *reader) firstWithPods(namespace string) *entry {
	for _, e := range r.entries {
		if len(e.pods) > 0 && e.pods[0].pod.Namespace == namespace {
			return e
		}
	}
	return nil
}
