package procs

import (
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lookPath returns the path to execute, relative to Cwd unless absolute. The
// search is that of execvp(3) on the PATH of the new process: no shell, and
// an empty element is the working directory.
func lookPath(s Spec) (string, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return "", &StartError{Err: fs.ErrInvalid, text: "the command is empty"}
	}
	if s.Path != "" {
		return s.Path, nil
	}
	name := s.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := pathOf(s.Env)
	refused := ""
	for dir := range strings.SplitSeq(search, ":") {
		path := dir + "/" + name
		if dir == "" {
			path = "./" + name
		}
		switch err := executable(s.Cwd, path); {
		case err == nil:
			return path, nil
		case err != unix.ENOENT && err != unix.ENOTDIR && refused == "":
			refused = path
		}
	}
	if refused != "" { // let execve say why
		return refused, nil
	}
	return "", &StartError{Path: name, Err: fs.ErrNotExist, text: name + ": not found on PATH (" + search + ")"}
}

// pathOf returns the last PATH in env; without one, what execvp(3) takes then.
func pathOf(env []string) string {
	path := "/bin:/usr/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	return path
}

// executable says why a file cannot be executed by us, as far as its mode tells.
func executable(cwd, path string) error {
	path = under(cwd, path)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// under is path as seen from the working directory cwd.
func under(cwd, path string) string {
	if filepath.IsAbs(path) || cwd == "" {
		return path
	}
	return cwd + "/" + path
}
