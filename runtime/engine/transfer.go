package engine

// Step is what is done with an image or other files.
type Step string

// The steps. Reading looks for the names of the images in an archive, which may be there
// already. Copying is of files from and to containers.
const (
	Pulling   Step = "pulling"
	Unpacking Step = "unpacking"
	Reading   Step = "reading"
	Importing Step = "importing"
	Copying   Step = "copying"
)

// Transfer says how far a step with an image, an archive or other files is. A pull ends with unpacking, and
// reading with importing.
type Transfer struct {
	Step  Step
	Name  string // the image's reference, or the path of the archive or of the files
	Done  int64  // bytes, or layers while unpacking
	Total int64  // 0 while it is not known
	// Ended marks the last report about the name, with the bytes of all, and Err why it failed.
	Ended bool
	Err   error
}
