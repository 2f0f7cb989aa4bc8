package upgrade

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// site is a folder with an installed image and the one before it.
type site struct {
	t         *testing.T
	installed string
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{t, filepath.Join(t.TempDir(), "agent")}
	must(t, os.WriteFile(s.installed, []byte("old"), 0o755))
	must(t, os.WriteFile(Previous(s.installed), []byte("older"), 0o755))
	return s
}

// take is an image that replaces the one that is installed and runs.
func (s site) take() *Image {
	s.t.Helper()
	img := take(s.t, "good")
	img.disk.running = s.installed
	return img
}

// holds fails unless the folder has these two files and no other.
func (s site) holds(installed, previous string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.installed))
	must(s.t, err)
	want := map[string]string{"agent": installed, "agent.prev": previous}
	for _, e := range entries {
		got := mustRead(s.t, filepath.Join(filepath.Dir(s.installed), e.Name()))
		if got != want[e.Name()] || got == "" {
			s.t.Errorf("%s has %d bytes: %.10q", e.Name(), len(got), got)
		}
		delete(want, e.Name())
	}
	delete(want, "")
	for name, content := range want {
		if content != "" {
			s.t.Errorf("%s is not there", name)
		}
	}
}

func TestInstall(t *testing.T) {
	testproc.NoLeaks(t)
	s := newSite(t)
	img := s.take()
	fresh := mustRead(t, "/proc/self/exe") + trailer + "good"
	var synced []string
	img.disk.sync = func(f *os.File) error { synced = append(synced, "file"); return f.Sync() }
	img.disk.syncDir = func(path string) error { synced = append(synced, "folder"); return syncDir(path) }
	undo, err := img.Install(s.installed)
	must(t, err)
	s.holds(fresh, "old")
	if info, err := os.Stat(s.installed); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if len(synced) != 2 || synced[0] != "file" || synced[1] != "folder" {
		t.Errorf("synced %v", synced)
	}
	must(t, undo())
	s.holds("old", "")
	_, err = img.Install(s.installed) // again, without a previous one
	must(t, err)
	s.holds(fresh, "old")
}

// What an Install has left that was killed is removed, by the next one or by
// itself, unless it is somebody's who is at work.
func TestSweep(t *testing.T) {
	testproc.NoLeaks(t)
	s := newSite(t)
	folder := filepath.Dir(s.installed)
	leave := func() { must(t, os.WriteFile(scrapIn(folder), []byte("half"), 0o700)) }
	leave()
	must(t, Sweep(s.installed))
	s.holds("old", "older")

	leave()
	_, err := s.take().Install(s.installed)
	must(t, err)
	s.holds(mustRead(t, s.installed), "old")

	leave()
	other, err := claim(folder)
	must(t, err)
	before, err := os.ReadDir(folder)
	must(t, err)
	if err := Sweep(s.installed); err == nil {
		t.Error("swept while another upgrade was under way")
	}
	if _, err := s.take().Install(s.installed); err == nil {
		t.Error("installed while another upgrade was under way")
	}
	if now, err := os.ReadDir(folder); err != nil || len(now) != len(before) {
		t.Errorf("there are %v, were %v", now, before)
	}
	must(t, other.Close())
	for _, name := range []string{".supervisor-notes", ".supervisor", "supervisor-" + rand.Text()} {
		must(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	must(t, Sweep(s.installed))
	if now, err := os.ReadDir(folder); err != nil || len(now) != 5 {
		t.Errorf("others' files are gone: %v", now)
	}
}

// Each call of the system that fails leaves everything as it was.
func TestInstallFails(t *testing.T) {
	testproc.NoLeaks(t)
	broken := errors.New("broken")
	renames := func(nth int) func(from, to string) error {
		return func(from, to string) error {
			if nth--; nth == 0 {
				return broken
			}
			return os.Rename(from, to)
		}
	}
	for name, fail := range map[string]func(d *disk){
		"open":          func(d *disk) { d.open = func(string, int, os.FileMode) (*os.File, error) { return nil, broken } },
		"chmod":         func(d *disk) { d.chmod = func(*os.File, os.FileMode) error { return broken } },
		"sync":          func(d *disk) { d.sync = func(*os.File) error { return broken } },
		"first rename":  func(d *disk) { d.rename = renames(1) },
		"second rename": func(d *disk) { d.rename = renames(2) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			img := s.take()
			fail(&img.disk)
			if _, err := img.Install(s.installed); !errors.Is(err, broken) {
				t.Errorf("installed: %v", err)
			}
			s.holds("old", "older")
		})
	}
	t.Run("sync of the folder", func(t *testing.T) {
		s := newSite(t)
		img := s.take()
		img.disk.syncDir = func(string) error { return broken }
		if _, err := img.Install(s.installed); !errors.Is(err, broken) {
			t.Errorf("installed: %v", err)
		}
		s.holds("old", "") // what was before the old one is gone by then
	})
}

// C23: no space beside the installed image.
func TestC23NoSpace(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("mounting takes privileges: ", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	s := site{t, filepath.Join(dir, "agent")}
	must(t, os.WriteFile(s.installed, []byte("old"), 0o755))
	if _, err := s.take().Install(s.installed); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("installed: %v", err)
	}
	s.holds("old", "")
}

// Without hard links the running image is copied.
func TestInstallWithoutLink(t *testing.T) {
	s := newSite(t)
	img := s.take()
	img.disk.link = func(string, string) error { return unix.EPERM }
	_, err := img.Install(s.installed)
	must(t, err)
	s.holds(mustRead(t, s.installed), "old")
}

// What a package manager does to the installed file does not change what runs,
// and what there must be a way back to.
func TestInstallKeepsWhatRuns(t *testing.T) {
	self := mustRead(t, "/proc/self/exe")
	for name, happens := range map[string]func(installed string) error{
		"removed":  os.Remove,
		"replaced": func(string) error { return nil }, // by "old", which does not run
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			must(t, happens(s.installed))
			undo, err := take(t, "good").Install(s.installed)
			must(t, err)
			s.holds(self+trailer+"good", self)
			must(t, undo())
			s.holds(self, "")
		})
	}
}
