package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons for which a pod has failed whose record cannot be used.
const (
	reasonDamaged     = "RecordDamaged"
	reasonUnsupported = "RecordUnsupported"
)

// OtherVersion reports whether another version of runonce has written the record, in a format that
// this one does not know. What it says of the pod may be incomplete.
func (p *Pod) OtherVersion() bool { return p.Version != Version }

// Incomplete reports whether the record may not say all of what the machine has of the pod: it is
// damaged or of another version.
func (p *Pod) Incomplete() bool {
	return p.Failed != nil && (p.Failed.Reason == reasonDamaged || p.Failed.Reason == reasonUnsupported)
}

// decode returns the record that a file contains. One that cannot be used is that of a pod that has
// failed: it keeps nobody from working with other pods, and the pod is removed or run again like
// others that have failed. That needs nothing but its UID, and uses what could be read.
func decode(uid types.UID, path string, data []byte, written time.Time) *Pod {
	p := &Pod{Version: Version} // of one that is no JSON
	if json.Valid(data) {
		p.Version = 0 // the first one had none
	}
	err := json.Unmarshal(data, p) // it goes on after a value of the wrong type
	if p.Pod == nil && p.OtherVersion() {
		p.Pod = firstFormat(data)
	}
	if err == nil && p.Pod == nil {
		err = errors.New("the record has no pod")
	}
	switch {
	case p.OtherVersion():
		p.Failed = &Failure{Reason: reasonUnsupported, Message: fmt.Sprintf("%s has version %d, but this version of runonce supports only %d: "+
			`remove the pod with "runonce down", or use the version that started it`, path, p.Version, Version)}
	case err != nil:
		p.Failed = &Failure{Reason: reasonDamaged, Message: fmt.Sprintf("decoding %s: %v", path, err)}
	default:
		return p
	}
	p.identify(uid)
	if p.Started.IsZero() {
		p.Started = written
	}
	return p
}

// firstFormat returns the pod that a record of the first format is, which had no version, nil for
// any other.
func firstFormat(data []byte) *v1.Pod {
	pod := &v1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil || pod.UID == "" {
		return nil
	}
	return pod
}

// identify makes sure that the pod has the UID of its directory, and a name.
func (p *Pod) identify(uid types.UID) {
	if p.Pod == nil {
		p.Pod = &v1.Pod{}
	}
	p.Pod.UID, p.Pod.Status = uid, v1.PodStatus{}
	p.Pod.Namespace = cmp.Or(p.Pod.Namespace, metav1.NamespaceDefault)
	p.Pod.Name = cmp.Or(p.Pod.Name, string(uid))
}
