package upgrade

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRejected is wrapped by every error that is about the candidate. Nothing
// was changed then.
var ErrRejected = errors.New("upgrade rejected")

func rejectf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRejected, fmt.Errorf(format, args...))
}

// Image is a candidate: a sealed copy of the staged file. Swapping the file
// later changes nothing.
type Image struct {
	SHA256 string // lowercase hex
	file   *os.File
	size   int64
	disk   disk
}

// maxImage bounds what is copied into memory.
const maxImage = 256 << 20

// Take copies the file at path and checks that it is what was announced:
// its digest, 64 hex digits of either case, and an executable of this machine.
// installed is the file that would be replaced, which the staged one must not
// be. Errors wrap ErrRejected.
func Take(path, digest, installed string) (*Image, error) {
	want := strings.ToLower(digest)
	if b, err := hex.DecodeString(want); err != nil || len(b) != sha256.Size {
		return nil, rejectf("sha256 must be 64 hex digits")
	}
	f, err := openStaged(path, installed)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := sealedCopy(f)
	if err != nil {
		return nil, rejectf("copying %s: %w", path, err)
	}
	if img.SHA256 != want {
		img.Close()
		return nil, rejectf("%s has the digest %s, not %s", path, img.SHA256, want)
	}
	if err := img.checkELF(); err != nil {
		img.Close()
		return nil, rejectf("%s: %w", path, err)
	}
	return img, nil
}

// Close lets go of the copy.
func (img *Image) Close() error { return img.file.Close() }

// openStaged opens a file that could be run where it is.
func openStaged(path, installed string) (*os.File, error) {
	// Not blocking: a FIFO without a writer would wait for one.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, rejectf("%w", err)
	}
	if err := runnable(f, path, installed); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func runnable(f *os.File, path, installed string) error {
	info, err := f.Stat()
	if err != nil {
		return rejectf("%w", err)
	}
	mounted, err := mountFlags(f)
	if err != nil {
		return rejectf("%s: %w", path, err)
	}
	replaced, err := os.Stat(installed)
	switch {
	case !info.Mode().IsRegular():
		return rejectf("%s is no regular file", path)
	case info.Mode().Perm()&0o111 == 0:
		return rejectf("%s is not executable: its mode is %#o", path, info.Mode().Perm())
	case mounted&unix.ST_NOEXEC != 0:
		return rejectf("%s is on a file system mounted noexec", path)
	case err == nil && os.SameFile(info, replaced):
		return rejectf("%s is the installed image itself", path)
	case info.Size() > maxImage:
		return rejectf("%s has %d bytes, more than %d", path, info.Size(), maxImage)
	}
	return nil
}

func mountFlags(f *os.File) (int64, error) {
	var st unix.Statfs_t
	err := control(f, func(fd int) error { return unix.Fstatfs(fd, &st) })
	return int64(st.Flags), err
}

// sealedCopy reads a file once, into memory that nobody can change any more.
func sealedCopy(from io.Reader) (*Image, error) {
	f, err := memory("image")
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(from, maxImage+1))
	if err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Image{SHA256: hex.EncodeToString(h.Sum(nil)), file: f, size: n, disk: realDisk}, nil
}

// checkELF refuses what execve would take and then crash on: another machine's
// executable, and one whose segments are not all there.
func (img *Image) checkELF() error {
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := img.file.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return errors.New("not an ELF executable")
	}
	f, err := elf.NewFile(img.file)
	if err != nil {
		return fmt.Errorf("damaged or cut short: %w", err)
	}
	defer f.Close()
	if machine := machines[runtime.GOARCH]; f.Machine != machine || f.Class != elf.ELFCLASS64 {
		return fmt.Errorf("an executable for %v, not for %v", f.Machine, machine)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("an ELF file of type %v, not an executable", f.Type)
	}
	for _, p := range f.Progs {
		if end := p.Off + p.Filesz; end < p.Off || end > uint64(img.size) {
			return fmt.Errorf("cut short: a segment ends at %d of %d bytes", end, img.size)
		}
	}
	return nil
}

var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV,
	"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "loong64": elf.EM_LOONGARCH,
}
