// Command service is the small service of the demo: it answers on a loopback
// port of the kernel's choice and logs every request.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on %s\n", l.Addr())
	var requests atomic.Int64
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		fmt.Printf("request %d: %s %s\n", n, r.Method, r.URL.Path)
		fmt.Fprintf(w, "hello, caller number %d\n", n)
	})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		fmt.Println("asked to stop")
		s.Close()
	}()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
