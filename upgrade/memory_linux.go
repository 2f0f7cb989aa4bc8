package upgrade

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// State makes a sealed file in memory that holds a state. It is at its start.
func State(blob []byte) (*os.File, error) {
	f, err := memory("handoff")
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(blob); err == nil {
		err = seal(f)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// memory makes an empty file in memory, which may be executed.
func memory(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 all are executable
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal makes a file in memory unchangeable (fcntl(2), F_ADD_SEALS).
func seal(f *os.File) error {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	return control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, all)
		return err
	})
}

// control uses a descriptor without making it blocking, as File.Fd does.
func control(f *os.File, use func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := c.Control(func(fd uintptr) { result = use(int(fd)) }); err != nil {
		return err
	}
	return result
}

// fdOf is the number of an open file's descriptor, which the file keeps.
func fdOf(f *os.File) (number int) {
	_ = control(f, func(fd int) error {
		number = fd
		return nil
	})
	return number
}
