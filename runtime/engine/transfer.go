package engine

// Step is what an engine does with an image.
type Step string

// The steps. Reading looks for the names of the images in an archive, which may be there
// already.
const (
	Pulling   Step = "pulling"
	Unpacking Step = "unpacking"
	Reading   Step = "reading"
	Importing Step = "importing"
)

// Transfer says how far a step with an image or an archive is. A pull ends with unpacking, and
// reading with importing.
type Transfer struct {
	Step  Step
	Name  string // the image's reference, or the archive's path
	Done  int64  // bytes, or layers while unpacking
	Total int64  // 0 while it is not known
	// Ended marks the last report about the name, with the bytes of all, and Err why it failed.
	Ended bool
	Err   error
}
