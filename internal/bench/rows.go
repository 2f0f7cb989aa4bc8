package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"supervisor/client"
	"supervisor/journal"
)

// A rate is measured over this long, or over so many of its things.
const (
	span        = 700 * time.Millisecond
	streamBytes = 500_000_000
	recordBytes = 200
	recordBatch = 64
)

func (a *agent) rows() []row {
	rows := []row{
		{"agent_info on one connection", "/s", a.info, echo, "a bare echo of a JSON line", 0.80},
		{"500 MB of stdout to the Go client", "MB/s", a.stdout, pipe, "64 KiB pipe reads, discarded", 0.50},
		{"records, 64 clients that wait", "/s", records, bare, "bare bbolt, transactions of 64", 0.50},
	}
	for _, s := range []struct {
		clients int
		goal    float64
	}{{1, 0.60}, {8, 0.85}, {64, 0.85}} {
		rows = append(rows, row{
			fmt.Sprintf("durable start and wait, %d clients", s.clients), "/s",
			func() (float64, error) { return a.starts(s.clients) },
			func() (float64, error) { return bareStarts(s.clients) },
			"os.StartProcess with two pipes", s.goal,
		})
	}
	return rows
}

// rate runs f from so many goroutines for the span.
func rate(clients int, f func() error) (float64, error) {
	var n atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(began) < span {
				if err := f(); err != nil {
					errs <- err
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(n.Load()) / time.Since(began).Seconds(), nil
	}
}

func (a *agent) info() (float64, error) {
	conn, err := net.Dial("unix", filepath.Join(a.dir, "agent.sock"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return roundTrips(conn, `{"op":"agent_info"}`+"\n")
}

// echo talks to a process that answers lines with themselves.
func echo() (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "echo"), os.NewFile(uintptr(fds[1]), "echo")
	defer ours.Close()
	cmd := exec.Command(self, "echo")
	cmd.Stdin = theirs
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return 0, err
	}
	perSecond, err := roundTrips(conn, `{"op":"agent_info"}`+"\n")
	conn.Close()
	ours.Close()
	return perSecond, errors.Join(err, cmd.Wait())
}

// echoServer is the other side. It ends with its peer.
func echoServer(socket *os.File) {
	conn, err := net.FileConn(socket)
	if err != nil {
		return
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := conn.Write(line); err != nil {
			return
		}
	}
}

func roundTrips(conn net.Conn, line string) (float64, error) {
	r := bufio.NewReader(conn)
	request := []byte(line)
	return rate(1, func() error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		_, err := r.ReadSlice('\n')
		return err
	})
}

// writer is a program that writes streamBytes to its stdout.
var writer = []string{"head", "-c", fmt.Sprint(streamBytes), "/dev/zero"}

// stdout follows a process that writes as fast as it is read. The ring holds
// all of it, so that nothing is dropped.
func (a *agent) stdout() (float64, error) {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	p, err := c.Start(context.Background(), client.StartRequest{Cmd: writer})
	if err != nil {
		return 0, err
	}
	var got int64
	for chunk, err := range c.Follow(context.Background(), p.Handle, client.Position{}) {
		if err != nil {
			return 0, err
		}
		got += int64(len(chunk.Data))
	}
	if got != streamBytes {
		return 0, fmt.Errorf("%d bytes read of %d", got, streamBytes)
	}
	return streamBytes / 1e6 / time.Since(began).Seconds(), nil
}

func pipe() (float64, error) {
	cmd := exec.Command(writer[0], writer[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	total := 0
	for {
		n, err := out.Read(buf)
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	return float64(total) / 1e6 / time.Since(began).Seconds(), nil
}

func records() (float64, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(filepath.Join(dir, "journal.db"), journal.Options{})
	if err != nil {
		return 0, err
	}
	payload := make([]byte, recordBytes)
	perSecond, err := rate(recordBatch, func() error {
		_, err := j.Append(payload)
		return err
	})
	return perSecond, errors.Join(err, j.Close())
}

func bare() (float64, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "bare.db"), 0o600, nil)
	if err != nil {
		return 0, err
	}
	payload := make([]byte, recordBytes)
	seq := uint64(0)
	perSecond, err := rate(1, func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("records"))
			if err != nil {
				return err
			}
			b.FillPercent = 1
			for range recordBatch {
				seq++
				if err := b.Put(fmt.Appendf(nil, "%016x", seq), payload); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return recordBatch * perSecond, errors.Join(err, db.Close())
}

// starts measures durable starts whose exits are waited for, each client on
// a connection of its own.
func (a *agent) starts(clients int) (float64, error) {
	pool := make(chan *client.Client, clients)
	for range clients {
		c, err := client.Dial(context.Background(), a.addr)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		pool <- c
	}
	return rate(clients, func() error {
		c := <-pool
		defer func() { pool <- c }()
		p, err := c.Start(context.Background(), client.StartRequest{Cmd: []string{"/bin/true"}})
		if err != nil {
			return err
		}
		_, err = c.Wait(context.Background(), p.Handle)
		return err
	})
}

func bareStarts(clients int) (float64, error) {
	return rate(clients, bareStart)
}

// bareStart starts a program with two pipes and waits for it.
func bareStart() error {
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer outR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, outW.Close())
	}
	defer errR.Close()
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Files: []*os.File{nil, outW, errW}})
	err = errors.Join(err, outW.Close(), errW.Close())
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}
