package provider

import (
	"context"
	"errors"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
)

// Objects are the objects of a cluster that pods refer to, given by functions such as those of
// listers. A function that is nil finds nothing.
type Objects struct {
	ConfigMaps func(namespace, name string) (*v1.ConfigMap, error)
	Secrets    func(namespace, name string) (*v1.Secret, error)
	Claims     func(namespace, name string) (*v1.PersistentVolumeClaim, error)
	Volumes    func(name string) (*v1.PersistentVolume, error)
	// Tokens makes a token of a service account. It is the API's TokenRequest.
	Tokens func(ctx context.Context, namespace, serviceAccount string, r *authentication.TokenRequest) (*authentication.TokenRequest, error)
}

func find[T any](get func(namespace, name string) (*T, error), namespace, name string) (*T, bool) {
	if get == nil {
		return nil, false
	}
	found, err := get(namespace, name)
	return found, err == nil
}

// ConfigMap finds a ConfigMap.
func (o Objects) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	return find(o.ConfigMaps, namespace, name)
}

// Secret finds a Secret.
func (o Objects) Secret(namespace, name string) (*v1.Secret, bool) {
	return find(o.Secrets, namespace, name)
}

// Claim finds a PersistentVolumeClaim.
func (o Objects) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	return find(o.Claims, namespace, name)
}

// PersistentVolume finds a PersistentVolume.
func (o Objects) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	if o.Volumes == nil {
		return nil, false
	}
	found, err := o.Volumes(name)
	return found, err == nil
}

// CreateToken makes a token of a service account.
func (o Objects) CreateToken(
	ctx context.Context, namespace, serviceAccount string, r *authentication.TokenRequest,
) (*authentication.TokenRequest, error) {
	if o.Tokens == nil {
		return nil, errors.New("there are no tokens of service accounts")
	}
	return o.Tokens(ctx, namespace, serviceAccount, r)
}
