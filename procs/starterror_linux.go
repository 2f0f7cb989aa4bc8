package procs

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// StartError says why a program could not be started, in a sentence for people
// that names the path to blame.
type StartError struct {
	Path string // the program, its interpreter or the working directory; may be empty
	Err  error  // the cause, for errors.Is: mostly an errno
	text string
}

func (e *StartError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

func startError(path string, err error, format string, args ...any) *StartError {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	return &StartError{Path: path, Err: err, text: text}
}

// Limits of execve(2): one string, its NUL included, has at most 32 pages.
const maxArg = 128<<10 - 1

// explain finds the cause of a failed fork and exec: the kernel gives one
// number for the working directory, the program and its interpreter.
func explain(s Spec, path string, err error) *StartError {
	if e := explainStrings(s, err); e != nil {
		return e
	}
	if e := explainCwd(s.Cwd); e != nil {
		return e
	}
	full := under(s.Cwd, path)
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP, unix.ENAMETOOLONG, unix.ELIBBAD:
		return explainProgram(full, err)
	case unix.ENOEXEC:
		return startError(full, err, "not an executable format: %s", describe(full))
	case unix.ETXTBSY:
		return startError(full, err, "is being written, and cannot be executed meanwhile")
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return startError("", err, "no new process can be made now: %v", err)
	}
	return startError(full, err, "%v", err)
}

// explainStrings covers the strings of the spec.
func explainStrings(s Spec, err error) *StartError {
	for _, str := range append(append([]string{s.Cwd}, s.Argv...), s.Env...) {
		if strings.ContainsRune(str, 0) {
			return startError("", err, "%q: holds a NUL byte", str[:min(len(str), 64)])
		}
	}
	if err != unix.E2BIG {
		return nil
	}
	total := 0
	for i, arg := range s.Argv {
		if len(arg) > maxArg {
			return startError("", err, "argument list too long: argument %d has %d bytes, the limit is %d", i, len(arg), maxArg)
		}
		total += len(arg)
	}
	for _, e := range s.Env {
		if len(e) > maxArg {
			name, _, _ := strings.Cut(e, "=")
			return startError("", err, "argument list too long: the variable %.64s has %d bytes, the limit is %d", name, len(e), maxArg)
		}
		total += len(e)
	}
	return startError("", err, "argument list too long: arguments and environment have %d bytes together", total)
}

// explainCwd returns nil when the working directory can be entered.
func explainCwd(cwd string) *StartError {
	if cwd == "" {
		return nil
	}
	var st unix.Stat_t
	err := unix.Stat(cwd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, cwd, unix.X_OK, unix.AT_EACCESS)
	}
	switch err {
	case nil:
		return nil
	case unix.ENOENT:
		return startError(cwd, err, "working directory not found")
	case unix.ENOTDIR:
		return startError(cwd, err, "working directory is not a directory")
	case unix.EACCES:
		return startError(cwd, err, "permission denied on the working directory")
	}
	return startError(cwd, err, "working directory: %v", err)
}

// explainProgram covers the errors that are about the file or what it names.
func explainProgram(path string, err error) *StartError {
	var st unix.Stat_t
	switch serr := unix.Stat(path, &st); {
	case serr == unix.EACCES:
		return startError(path, err, "permission denied on a directory of the path")
	case serr == unix.ENOENT, serr == unix.ENOTDIR:
		return startError(path, err, "not found")
	case serr != nil:
		return startError(path, err, "%v", serr)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return startError(path, err, "is a directory")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return startError(path, err, "is no regular file")
	}
	if interpreter := interpreterOf(path); interpreter != "" {
		if cause := executable("", interpreter); cause != nil {
			return startError(interpreter, err, "the interpreter of %s: %v", path, cause)
		}
	}
	if unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil {
		return startError(path, err, "permission denied: not executable (mode %04o)", st.Mode&0o7777)
	}
	return startError(path, err, "%v", err)
}

// interpreterOf returns the program that the kernel runs a file with: that of
// a #! line, or the dynamic loader of an ELF file.
func interpreterOf(path string) string {
	f, err := openToLook(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if line, ok := bytes.CutPrefix(headOf(f), []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		words := bytes.Fields(line)
		if len(words) == 0 {
			return ""
		}
		return string(words[0])
	}
	image, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range image.Progs {
		if p.Type == elf.PT_INTERP {
			name, _ := io.ReadAll(io.LimitReader(p.Open(), unix.PathMax))
			return string(bytes.TrimRight(name, "\x00"))
		}
	}
	return ""
}

// describe says what a file is that the kernel could not execute.
func describe(path string) string {
	f, err := openToLook(path)
	if err != nil {
		return "it cannot be read"
	}
	defer f.Close()
	head := headOf(f)
	switch {
	case len(head) == 0:
		return "the file is empty"
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return "an ELF file that is damaged or for another machine"
	case bytes.HasPrefix(head, []byte("#!")):
		return "the #! line names no interpreter that can be executed"
	case bytes.IndexByte(head, 0) < 0:
		return "a text without a #! line"
	}
	return "an unknown binary format"
}

// openToLook opens a file that a stranger named, and waits for nobody: it may be
// a FIFO by now.
func openToLook(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// headOf returns the first bytes of a file, as many as the kernel looks at.
func headOf(f io.ReaderAt) []byte {
	buf := make([]byte, 256)
	n, _ := f.ReadAt(buf, 0)
	return buf[:n]
}
