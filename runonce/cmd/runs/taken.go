package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Taken says that another run, or somebody who took it down, has stopped a pod of this
// run, which must not start it again.
type Taken struct {
	Pod string
	By  *v1.Pod // has preempted it; nil when it was stopped for another reason
}

func (e *Taken) Error() string {
	if e.By != nil {
		return fmt.Sprintf("pod %q was preempted by %s/%s, which another run has admitted", e.Pod, e.By.Namespace, e.By.Name)
	}
	return fmt.Sprintf("pod %q was stopped by another process", e.Pod)
}

// Permanent says that no retry can mend it.
func (e *Taken) Permanent() bool { return true }

// Reason is a single word.
func (e *Taken) Reason() string { return "Stopped" }

// PreemptedBy returns the pod that has taken this one's place, nil when none has.
func (e *Taken) PreemptedBy() *v1.Pod { return e.By }

// Barred returns a *Taken when the pod must not be started since another process has
// taken it from this run. Whoever starts the pod has to ask while nobody can stop it.
func (r *Run) Barred(pod *v1.Pod) error {
	if r.marks == "" {
		return nil
	}
	data, err := os.ReadFile(other{marks: r.marks}.mark(pod.UID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var who types.NamespacedName
	if err == nil {
		err = json.Unmarshal(data, &who)
	}
	if err != nil {
		return fmt.Errorf("looking whether pod %q may be started: %w", pod.Name, err)
	}
	taken := &Taken{Pod: pod.Name}
	if who.Name != "" {
		taken.By = &v1.Pod{}
		taken.By.Namespace, taken.By.Name = who.Namespace, who.Name
	}
	return taken
}
