// Command vm boots the agent as the init of a real machine, has it tested from
// inside over AF_VSOCK, cuts its power, boots it again, pauses it, and lets it
// reboot and power off. It prints "ok" and "FAIL" lines and exits with 1 after
// a FAIL.
//
//	vm -bin BIN -kernel DIR -protocol FILE
//
// BIN holds the built supervisor and replay; DIR an unpacked Debian package of
// a cloud kernel; FILE is the page that names the verbs to be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// bootWithin bounds one boot: without KVM one takes ten seconds.
const bootWithin = 100 * time.Second

func main() {
	bin := flag.String("bin", "bin", "folder of the built binaries")
	kernel := flag.String("kernel", "", "folder of an unpacked kernel package")
	protocol := flag.String("protocol", "PROTOCOL.md", "page of the protocol")
	flag.Parse()
	failed, err := run(*bin, *kernel, *protocol)
	if err != nil {
		fmt.Println("FAIL ", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func run(bin, kernel, protocol string) (failed bool, err error) {
	dir, err := os.MkdirTemp("", "vm-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	m := machine{dir: dir}
	if m.kernel, err = one(filepath.Join(kernel, "boot", "vmlinuz-*")); err != nil {
		return false, err
	}
	if err := m.prepare(bin, kernel, protocol); err != nil {
		return false, err
	}
	for i, end := range []end{powerCut, reboot, powerOff} {
		if err := m.boot(end); err != nil {
			return m.failed, fmt.Errorf("boot %d: %w", i+1, err)
		}
	}
	m.check("the processes were asked to end", m.diskHolds("/polite"))
	m.check("the journal of all boots verifies", m.verify(bin))
	return m.failed, nil
}

// one is the file that a pattern matches.
func one(pattern string) (string, error) {
	names, err := filepath.Glob(pattern)
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("%d files match %s", len(names), pattern)
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// modules are what the guest needs that this kernel has not built in.
var modules = []string{
	"virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk",
	"vsock", "vmw_vsock_virtio_transport_common", "vsock_loopback",
}

// prepare makes the initramfs and an empty disk. The agent is there twice: to
// be the init, and to be staged.
func (m *machine) prepare(bin, kernel, protocol string) error {
	root := filepath.Join(m.dir, "root")
	if err := os.MkdirAll(filepath.Join(root, "m"), 0o755); err != nil {
		return err
	}
	agent := filepath.Join(bin, "supervisor")
	files := map[string]string{"supervisor": agent, "image": agent}
	for _, name := range modules {
		found, err := find(kernel, name+".ko")
		if err != nil {
			return err
		}
		files[filepath.Join("m", name+".ko")] = found
	}
	for to, from := range files {
		if err := command("cp", from, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	if err := listVerbs(protocol, filepath.Join(root, "verbs")); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(root, "init"), "./internal/vm/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	return errors.Join(
		told(build),
		command("sh", "-ec", `cd "$0" && find . | cpio --quiet -o -H newc >"$1"`, root, m.path("initrd")),
		command("truncate", "-s", "64M", m.path("disk")),
		command("mkfs.ext4", "-q", m.path("disk")),
	)
}

// listVerbs writes down the verbs that a page has examples of, less those of
// the agent front, which have no op.
func listVerbs(protocol, to string) error {
	page, err := os.ReadFile(protocol)
	if err != nil {
		return err
	}
	var list []byte
	for _, verb := range regexp.MustCompile(`(?m)^    -> \{"op":"(\w+)"`).FindAllSubmatch(page, -1) {
		list = append(append(list, verb[1]...), '\n')
	}
	return os.WriteFile(to, list, 0o600)
}

func find(dir, name string) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == name {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("the kernel has no %s", name)
	}
	return found, err
}

func command(name string, args ...string) error { return told(exec.Command(name, args...)) }

// told runs a command whose error says what it printed.
func told(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// verify checks the journal that was on the disk.
func (m *machine) verify(bin string) error {
	if err := m.diskHolds("/journal.db"); err != nil {
		return err
	}
	return command(filepath.Join(bin, "replay"), "verify", m.path("journal.db"))
}

// diskHolds copies a file from the disk.
func (m *machine) diskHolds(path string) error {
	to := m.path(filepath.Base(path))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// debugfs says little of what goes wrong: the copy does.
	err := told(exec.CommandContext(ctx, "debugfs", "-R", "dump "+path+" "+to, m.path("disk")))
	info, missing := os.Stat(to)
	if err == nil && (missing != nil || info.Size() == 0) {
		err = fmt.Errorf("%s is not on the disk", path)
	}
	return err
}
