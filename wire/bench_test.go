package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"runtime"
	"testing"
)

// BenchmarkRoundTrip compares agent_info with a bare echo of a line of the same
// length, on one connection of the same kind.
func BenchmarkRoundTrip(b *testing.B) {
	request := AppendRequest(nil, "agent_info", "", nil)
	info := (&fake{}).Info()
	reply := AppendReply(nil, "", &info, nil)
	b.Run("echo", func(b *testing.B) {
		a := Addr{Network: Unix, Path: b.TempDir() + "/s"}
		l, err := Listen(a, Access{})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			r := bufio.NewReader(c)
			for {
				if _, err := r.ReadSlice('\n'); err != nil {
					return
				}
				c.Write(reply)
			}
		}()
		roundTrips(b, a, request)
	})
	b.Run("agent_info", func(b *testing.B) {
		_, a := serving(b, &Guest{Backend: new(quiet)}, socket(b), 0)
		roundTrips(b, a, request)
	})
}

// quiet is a fake that remembers nothing.
type quiet struct{ fake }

func (*quiet) Note(Caller, string, error) {}
func (*quiet) Info() InfoReply {
	return InfoReply{AgentVersion: "1", Caps: []string{"proc", "ids"}, PID: 1, Journal: "ok"}
}

func roundTrips(b *testing.B, a Addr, request []byte) {
	c, err := Dial(context.Background(), a)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
}

func bigLogs() *LogsReply {
	reply := &LogsReply{Stdout: make([]byte, 4<<20), StdoutOffset: 4 << 20, Exit: Exit{Running: true}}
	rand.Read(reply.Stdout)
	return reply
}

func BenchmarkEncodeLogs(b *testing.B) {
	reply := bigLogs()
	var line []byte
	b.SetBytes(int64(len(reply.Stdout)))
	for b.Loop() {
		line = AppendReply(line[:0], "", reply, nil)
	}
}

// BenchmarkDecodeLogs is what a client does with the line of a reply.
func BenchmarkDecodeLogs(b *testing.B) {
	line := AppendReply(nil, "", bigLogs(), nil)
	var reply LogsReply
	b.SetBytes(4 << 20)
	for b.Loop() {
		if _, err := DecodeReply(bytes.TrimSuffix(line, []byte("\n")), &reply); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	big := StdinRequest{Handle: "p", Data: make([]byte, 4<<20)}
	for name, line := range map[string][]byte{
		"start":      AppendRequest(nil, "proc_start", "17", &StartRequest{Cmd: []string{"sh", "-c", "echo"}, Cwd: "/tmp", Env: []string{"A=b"}}),
		"stdin_4MiB": AppendRequest(nil, "proc_stdin", "17", &big),
	} {
		line = bytes.TrimSuffix(line, []byte("\n"))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				var x exchange
				if x.parse(line); x.refused != nil {
					b.Fatal(x.refused)
				}
			}
		})
	}
}

// BenchmarkIdleConnections reports the agent's bytes for each connection that
// was used once and is now silent.
func BenchmarkIdleConnections(b *testing.B) {
	const many = 400
	_, a := serving(b, &Guest{Backend: new(quiet)}, socket(b), many)
	request := AppendRequest(nil, "agent_info", "", nil)
	conns := make([]*Conn, many)
	answer := make([]byte, 4<<10)
	for i := range conns {
		conns[i], _ = Dial(context.Background(), a)
	}
	before := inUse()
	for _, c := range conns {
		c.Write(request)
		c.Read(answer)
	}
	used := inUse()
	for _, c := range conns {
		c.Close()
	}
	until(b, "they are gone", func() bool { return runtime.NumGoroutine() < 20 })
	gone := inUse()
	for b.Loop() {
	}
	b.ReportMetric(float64(used-gone)/many, "B/conn") // the client's half included
	b.ReportMetric(float64(used-before)/many, "B/use")
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// BenchmarkStream is 4 MiB replies of proc_logs to a client over a socket.
func BenchmarkStream(b *testing.B) {
	whole := bigLogs()
	_, a := serving(b, &Guest{Backend: &streaming{whole: whole.Stdout}}, socket(b), 0)
	c, err := Dial(context.Background(), a)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	lines := NewLineReader(c, 64<<20)
	request := AppendRequest(nil, "proc_logs", "", &LogsRequest{Handle: "p", Limit: MaxLogLimit})
	var reply LogsReply
	b.SetBytes(int64(len(whole.Stdout)))
	for b.Loop() {
		c.Write(request)
		line, err := lines.Next()
		if err == nil {
			_, err = DecodeReply(line, &reply)
		}
		if err != nil || len(reply.Stdout) != len(whole.Stdout) {
			b.Fatal(err, len(reply.Stdout))
		}
	}
	io.Discard.Write(reply.Stdout)
}

type streaming struct {
	quiet
	whole []byte
}

func (s *streaming) Logs(_ context.Context, r LogsRequest, reply *LogsReply) error {
	reply.Stdout = append(reply.Stdout, s.whole[:r.Limit]...)
	return nil
}
