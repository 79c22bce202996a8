package provider_test

import (
	"context"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// api is a client of an API server. The typed clients of client-go would need more modules.
type api struct {
	rest   *rest.RESTClient
	scheme *runtime.Scheme
}

func newAPI(config *rest.Config) (api, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, authentication.AddToScheme} {
		if err := add(scheme); err != nil {
			return api{}, err
		}
	}
	config.APIPath, config.GroupVersion, config.QPS = "/api", &v1.SchemeGroupVersion, -1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	return api{client, scheme}, err
}

// get returns an object.
func get[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, a api, resource, namespace, name string,
) (*T, error) {
	found := new(T)
	err := a.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Do(ctx).Into(P(found))
	if err != nil {
		return nil, err
	}
	return found, nil
}

// updateStatus writes the status of a node or a pod.
func (a api) updateStatus(ctx context.Context, resource string, o interface {
	metav1.Object
	runtime.Object
},
) error {
	return a.rest.Put().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).Name(o.GetName()).SubResource("status").Body(o).Do(ctx).Error()
}

// deletePod deletes a pod of the default namespace.
func (a api) deletePod(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.rest.Delete().Namespace(v1.NamespaceDefault).Resource("pods").Name(name).Body(&o).Do(ctx).Error()
}

func (a api) createToken(ctx context.Context, namespace, account string, r *authentication.TokenRequest) (*authentication.TokenRequest, error) {
	made := &authentication.TokenRequest{}
	err := a.rest.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(r).Do(ctx).Into(made)
	return made, err
}

// event writes an event, as an EventRecorder of client-go does.
func (a api) event(ctx context.Context, pod *v1.Pod, eventType, reason, message string) {
	e := &v1.Event{Type: eventType, Reason: reason, Message: message, Count: 1, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now()}
	e.GenerateName, e.Namespace = pod.Name+".", pod.Namespace
	e.InvolvedObject = v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	_ = a.rest.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error() // an event may be lost
}
