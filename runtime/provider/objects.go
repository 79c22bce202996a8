package provider

import (
	"context"
	"sync"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Objects are the objects of a cluster that pods refer to, given by functions such as those of
// listers. A function that is nil finds nothing. It also keeps the tokens of pods, only in memory.
type Objects struct {
	ConfigMaps func(namespace, name string) (*v1.ConfigMap, error)
	Secrets    func(namespace, name string) (*v1.Secret, error)
	Claims     func(namespace, name string) (*v1.PersistentVolumeClaim, error)
	Volumes    func(name string) (*v1.PersistentVolume, error)
	// CreateToken makes a token of a service account. It is the API's TokenRequest.
	CreateToken func(ctx context.Context, namespace, serviceAccount string, r *authentication.TokenRequest) (*authentication.TokenRequest, error)

	tokens sync.Map // by tokenKey
}

// ClusterObjects returns the objects that the informers know, with tokens that the client makes. It
// must be called before the informers are started.
func ClusterObjects(client kubernetes.Interface, f informers.Interface) *Objects {
	claims, volumes := f.PersistentVolumeClaims().Lister(), f.PersistentVolumes().Lister()
	configMaps, secrets := f.ConfigMaps().Lister(), f.Secrets().Lister()
	return &Objects{
		ConfigMaps: func(namespace, name string) (*v1.ConfigMap, error) { return configMaps.ConfigMaps(namespace).Get(name) },
		Secrets:    func(namespace, name string) (*v1.Secret, error) { return secrets.Secrets(namespace).Get(name) },
		Claims: func(namespace, name string) (*v1.PersistentVolumeClaim, error) {
			return claims.PersistentVolumeClaims(namespace).Get(name)
		},
		Volumes: volumes.Get,
		CreateToken: func(ctx context.Context, namespace, account string, r *authentication.TokenRequest) (*authentication.TokenRequest, error) {
			return client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, r, metav1.CreateOptions{})
		},
	}
}

func find[T any](get func(namespace, name string) (*T, error), namespace, name string) (*T, bool) {
	if get == nil {
		return nil, false
	}
	found, err := get(namespace, name)
	return found, err == nil
}

// ConfigMap finds a ConfigMap.
func (o *Objects) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	return find(o.ConfigMaps, namespace, name)
}

// Secret finds a Secret.
func (o *Objects) Secret(namespace, name string) (*v1.Secret, bool) {
	return find(o.Secrets, namespace, name)
}

// Claim finds a PersistentVolumeClaim.
func (o *Objects) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	return find(o.Claims, namespace, name)
}

// PersistentVolume finds a PersistentVolume.
func (o *Objects) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	if o.Volumes == nil {
		return nil, false
	}
	found, err := o.Volumes(name)
	return found, err == nil
}
