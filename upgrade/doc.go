// Package upgrade replaces the running image by another one, in place: the
// mechanism of it, without any idea of what an agent is. It knows an opaque
// state, named descriptors, files and execve.
//
//	Take      the staged file into a sealed copy in memory: what is hashed,
//	          tried and installed is that copy
//	Try       it says its version, and that it can read the state
//	Install   the copy beside the installed file, then in its place; the image
//	          that runs stays as <name>.prev
//	Exec      the installed file, with the state and the descriptors
//	Inherit   in the new image: the state, once
//	Exec      <name>.prev with the same state, if the new image cannot go on
//
// Nothing that is destroyed before the execve cannot be undone, and until the
// new image has read its first byte the old one can be put back with the very
// same descriptors.
package upgrade
