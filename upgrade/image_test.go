package upgrade

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// C23: what cannot work is refused with the reason, and nothing is left open
// or changed.
func TestC23Refused(t *testing.T) {
	good, digest := candidate(t, "good")
	image := []byte(mustRead(t, good))
	file := func(content []byte) func(t *testing.T) (string, string) {
		return func(t *testing.T) (string, string) { return staged(t, content) }
	}
	with := func(change func(t *testing.T, path string) string) func(t *testing.T) (string, string) {
		return func(t *testing.T) (string, string) {
			path, digest := staged(t, image)
			return change(t, path), digest
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T) (path, digest string)
		says string
	}{
		"no digest":    {func(t *testing.T) (string, string) { return good, "" }, "64 hex digits"},
		"short digest": {func(t *testing.T) (string, string) { return good, digest[:62] }, "64 hex digits"},
		"wrong digest": {func(t *testing.T) (string, string) { return good, strings.Repeat("0", 64) }, "has the digest " + digest},
		"no path":      {func(t *testing.T) (string, string) { return "", digest }, "no such file"},
		"folder":       {func(t *testing.T) (string, string) { return t.TempDir(), digest }, "no regular file"},
		"fifo": {func(t *testing.T) (string, string) {
			path := filepath.Join(t.TempDir(), "fifo")
			must(t, unix.Mkfifo(path, 0o755))
			return path, digest
		}, "no regular file"},
		"dangling link": {func(t *testing.T) (string, string) {
			path := filepath.Join(t.TempDir(), "link")
			must(t, os.Symlink("/no/such/file", path))
			return path, digest
		}, "no such file"},
		"mode 0644": {with(func(t *testing.T, path string) string {
			must(t, os.Chmod(path, 0o644))
			return path
		}), "its mode is 0644"},
		"empty":       {file(nil), "not an ELF"},
		"half":        {file(image[:len(image)/2]), "damaged"},
		"4 KiB":       {file(image[:4096]), "damaged"},
		"no sections": {file(patched(image[:len(image)/2], 60, 0)), "cut short"},
		"gzip":        {file(zipped(image)), "not an ELF"},
		"script":      {file([]byte("#!/bin/sh\necho 1.0\n")), "not an ELF"},
		"machine":     {file(patched(image, 18, 0x1234)), "not for"},
		"object":      {file(patched(image, 16, 1)), "not an executable"},
		"bad segment": {file(patched(image, 64+32+6, 0xffff)), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path, digest := c.make(t)
			before := testproc.Descriptors()
			img, err := Take(path, digest, "/no/such/agent")
			if img != nil || !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("taken %v, %v", img, err)
			}
			if now := testproc.Descriptors(); len(now) != len(before) {
				t.Errorf("open are %v, were %v", now, before)
			}
			if _, err := os.Lstat(path); path != "" && err != nil {
				t.Error(err)
			}
		})
	}
}

// C23: the installed image itself, under whatever name.
func TestC23Installed(t *testing.T) {
	installed, digest := candidate(t, "good")
	soft, hard := filepath.Join(t.TempDir(), "soft"), filepath.Join(filepath.Dir(installed), "hard")
	must(t, os.Symlink(installed, soft))
	must(t, os.Link(installed, hard))
	for _, path := range []string{installed, soft, hard} {
		if _, err := Take(path, digest, installed); err == nil || !strings.Contains(err.Error(), "the installed image itself") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// C23: a file on a noexec mount would not run where it lies.
func TestC23Noexec(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Skip("mounting takes privileges: ", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	good, digest := candidate(t, "good")
	path := filepath.Join(dir, "agent")
	must(t, os.WriteFile(path, []byte(mustRead(t, good)), 0o755))
	if _, err := Take(path, digest, "/no/such/agent"); err == nil || !strings.Contains(err.Error(), "noexec") {
		t.Error(err)
	}
}

// Either case of the digest will do, a link to the staged file too, and what
// was taken is a copy: swapping or removing the file changes nothing.
func TestTakenIsACopy(t *testing.T) {
	path, digest := candidate(t, "good")
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	img, err := Take(link, strings.ToUpper(digest), "/no/such/agent")
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	must(t, os.WriteFile(path, []byte("something else"), 0o755))
	must(t, os.Remove(path))
	if v, err := img.Version(runHere); v != "9.1.0" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	if _, err := img.file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the copy can be written")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// patched replaces a 16-bit field of a copy.
func patched(image []byte, at int, value uint16) []byte {
	out := bytes.Clone(image)
	binary.LittleEndian.PutUint16(out[at:], value)
	return out
}
