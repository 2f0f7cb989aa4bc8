package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/wire"
)

// absolute is a path of the older verbs.
func absolute(path string) string { return filepath.Join("/", path) }

// fileError is an error that names its path.
func fileError(err error) error {
	if err == nil {
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "%s", err)
}

// WriteFile implements wire.Older. The file is written in place: its owner,
// its links and, unless it is asked for, its mode stay as they are.
func (e *Engine) WriteFile(ctx context.Context, caller wire.Caller, r wire.WriteFileRequest) error {
	return e.attend(ctx, caller, func(ctx context.Context) error { return fileError(writeFile(ctx, r)) })
}

func writeFile(ctx context.Context, r wire.WriteFileRequest) (err error) {
	path := absolute(r.Path)
	_, missing := os.Lstat(path)
	how := os.O_TRUNC
	if r.Append {
		how = os.O_APPEND
	}
	// Nonblocking: a FIFO that nobody reads is an error, not a wait.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY|how, wire.DefaultFileMode)
	if err != nil {
		return err
	}
	defer awaitForks() // behind the close
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	defer context.AfterFunc(ctx, func() { f.SetDeadline(time.Unix(1, 0)) })() // of a pipe
	if r.Mode == 0 && missing != nil {
		r.Mode = wire.DefaultFileMode // whatever the umask is
	}
	if r.Mode != 0 {
		if err := f.Chmod(fileMode(r.Mode)); err != nil {
			return err
		}
	}
	_, err = f.Write(r.Data)
	return err
}

// fileMode is chmod(2)'s mode as Go has it.
func fileMode(bits int) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	for bit, m := range map[int]os.FileMode{unix.S_ISUID: os.ModeSetuid, unix.S_ISGID: os.ModeSetgid, unix.S_ISVTX: os.ModeSticky} {
		if bits&bit != 0 {
			mode |= m
		}
	}
	return mode
}

// awaitForks returns when no child that is being forked can hold a file that
// was open for writing before: it could not be executed (ETXTBSY).
func awaitForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}

// ReadFile implements wire.Older.
func (e *Engine) ReadFile(ctx context.Context, r wire.ReadFileRequest) (*wire.ReadFileReply, error) {
	path := absolute(r.Path)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fileError(err)
	}
	reply := &wire.ReadFileReply{}
	from := &fileRange{file: f, in: bufio.NewReaderSize(f, 64<<10), reply: reply, left: r.Limit, all: r.Limit == 0}
	from.stop = context.AfterFunc(ctx, func() { f.Close() }) // a pipe may be silent
	reply.Data.From = from
	if err := from.begin(r.Offset); err != nil {
		from.Close()
		return nil, fileError(err)
	}
	return reply, nil
}

// fileRange reads a part of a file, and tells its reply if that reaches the
// end of the file.
type fileRange struct {
	file  *os.File
	in    *bufio.Reader
	reply *wire.ReadFileReply
	left  int64
	all   bool
	stop  func() bool
}

// begin finds out what can be known before the reply begins.
func (r *fileRange) begin(offset int64) error {
	if offset > 0 {
		if _, err := r.file.Seek(offset, io.SeekStart); err != nil {
			return err
		}
	}
	if _, err := r.in.Peek(1); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// Read implements io.Reader.
func (r *fileRange) Read(p []byte) (int, error) {
	if !r.all {
		p = p[:min(int64(len(p)), r.left)]
	}
	if len(p) == 0 { // is there more?
		_, err := r.in.Peek(1)
		r.reply.EOF = err == io.EOF
		return 0, io.EOF
	}
	n, err := r.in.Read(p)
	r.left -= int64(n)
	r.reply.EOF = err == io.EOF
	return n, err
}

// Close implements io.Closer.
func (r *fileRange) Close() error {
	r.stop()
	return r.file.Close()
}

// StatFile implements wire.Older.
func (e *Engine) StatFile(_ context.Context, r wire.PathRequest) (wire.StatFileReply, error) {
	var st unix.Stat_t
	path := absolute(r.Path)
	if err := unix.Stat(path, &st); err != nil {
		return wire.StatFileReply{}, fileError(fmt.Errorf("stat %s: %w", path, err))
	}
	return wire.StatFileReply{
		Size: st.Size, Mode: int(st.Mode & 0o7777), MTime: st.Mtim.Sec, IsDir: st.Mode&unix.S_IFMT == unix.S_IFDIR,
	}, nil
}
