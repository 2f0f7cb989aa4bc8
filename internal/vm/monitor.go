package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"
)

// monitor speaks to qemu (QMP, docs/interop/qmp-spec of QEMU).
type monitor struct {
	net.Conn
	lines *bufio.Scanner
}

// dialMonitor connects as soon as qemu listens.
func dialMonitor(path string) (*monitor, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_, err = io.WriteString(conn, `{"execute":"qmp_capabilities"}`)
			return &monitor{conn, bufio.NewScanner(conn)}, err
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// event waits for an event, and returns the reason that it gives.
func (m *monitor) event(name string) (reason string, err error) {
	_ = m.SetReadDeadline(time.Now().Add(10 * time.Second))
	for m.lines.Scan() {
		var line struct {
			Event string
			Data  struct{ Reason string }
		}
		if err := json.Unmarshal(m.lines.Bytes(), &line); err != nil {
			return "", err
		}
		if line.Event == name {
			return line.Data.Reason, nil
		}
	}
	return "", errors.Join(m.lines.Err(), errors.New("qemu tells of no "+name))
}

// pause stops the machine for a while, as a host does that needs the CPU.
func (m *monitor) pause(d time.Duration) error {
	if _, err := io.WriteString(m, `{"execute":"stop"}`); err != nil {
		return err
	}
	if _, err := m.event("STOP"); err != nil {
		return err
	}
	time.Sleep(d) // it is the pause
	if _, err := io.WriteString(m, `{"execute":"cont"}`); err != nil {
		return err
	}
	_, err := m.event("RESUME")
	return err
}

// end is how the machine has ended by itself.
func (m *monitor) end() (end, error) {
	reason, err := m.event("SHUTDOWN")
	return end(reason), err
}
