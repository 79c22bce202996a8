package provider

// kind is what virtual-kubelet asks an error for.
type kind int

const (
	notFound kind = iota + 1
	invalidInput
)

// fault is an error that virtual-kubelet's errdefs understand.
type fault struct {
	error
	kind kind
}

// NotFound says that the pod is not there.
func (f fault) NotFound() bool { return f.kind == notFound }

// InvalidInput says that no retry can mend what was asked for.
func (f fault) InvalidInput() bool { return f.kind == invalidInput }

// Unwrap returns the error itself.
func (f fault) Unwrap() error { return f.error }
