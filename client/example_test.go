package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"supervisor/client"
)

func Example() {
	addr, stop := exampleAgent()
	defer stop()

	ctx := context.Background()
	c, err := client.Dial(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	started, err := c.Start(ctx, client.StartRequest{Cmd: []string{"sh", "-c", "echo hello; exit 3"}})
	if err != nil {
		log.Fatal(err)
	}
	for chunk, err := range c.Follow(ctx, started.Handle, client.Position{}) {
		if err != nil {
			log.Fatal(err)
		}
		if chunk.Dropped != 0 {
			fmt.Printf("%d bytes of %v are lost\n", chunk.Dropped, chunk.Stream)
		}
		fmt.Printf("%v: %s", chunk.Stream, chunk.Data)
	}
	exit, err := c.Wait(ctx, started.Handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", exit.ExitCode)

	// Output:
	// stdout: hello
	// exit code 3
}

// Another client goes on where one has stopped.
func ExampleClient_Follow() {
	c, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	started, err := c.Start(ctx, client.StartRequest{Cmd: []string{"sh", "-c", "echo one; read x; echo two"}})
	if err != nil {
		log.Fatal(err)
	}
	var at client.Position
	for chunk, err := range c.Follow(ctx, started.Handle, at) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", chunk.Data)
		at[chunk.Stream] = chunk.End()
		break
	}
	if err := c.CloseStdin(ctx, started.Handle); err != nil {
		log.Fatal(err)
	}
	for chunk, err := range c.Follow(ctx, started.Handle, at) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("from %d: %s", chunk.Offset, chunk.Data)
	}

	// Output:
	// one
	// from 4: two
}

// What went wrong is told apart by errors.Is.
func ExampleClient_Signal() {
	c, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	started, err := c.Start(ctx, client.StartRequest{Cmd: []string{"true"}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Wait(ctx, started.Handle); err != nil {
		log.Fatal(err)
	}
	for _, handle := range []string{started.Handle, "p_0123456789abcdef"} {
		switch err := c.Signal(ctx, handle, 15, true); {
		case errors.Is(err, client.ErrNotRunning):
			fmt.Println("it has ended, and is still known")
		case errors.Is(err, client.ErrUnknownHandle):
			fmt.Println("nobody knows it")
		default:
			fmt.Println("another trouble:", err)
		}
	}

	// Output:
	// it has ended, and is still known
	// nobody knows it
}

// The agent is replaced, here by itself, and the process goes on.
func ExampleClient_Upgrade() {
	c, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	started, err := c.Start(ctx, client.StartRequest{Cmd: []string{"cat"}})
	if err != nil {
		log.Fatal(err)
	}
	dir, _ := build() // of the agent
	image, err := os.ReadFile(filepath.Join(dir, "supervisor"))
	if err != nil {
		log.Fatal(err)
	}
	before, after, err := c.Upgrade(ctx, client.Upgrade{Image: bytes.NewReader(image)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("from %s to %s, the same process: %v\n", before.AgentVersion, after.AgentVersion, before.PID == after.PID)
	if err := c.CloseStdin(ctx, started.Handle); err != nil {
		log.Fatal(err)
	}
	exit, err := c.Wait(ctx, started.Handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", exit.ExitCode)

	// Output:
	// from dev to dev, the same process: true
	// exit code 0
}

// The journal is followed until a process ends.
func ExampleClient_FollowRecords() {
	c, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	started, err := c.Start(ctx, client.StartRequest{Cmd: []string{"true"}})
	if err != nil {
		log.Fatal(err)
	}
	for record, err := range c.FollowRecords(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if record.Handle != started.Handle {
			continue
		}
		if record.Kind == "proc.requested" || record.Kind == "proc.exited" {
			fmt.Println(record.Kind)
		}
		if record.Kind == "proc.exited" {
			break
		}
	}

	// Output:
	// proc.requested
	// proc.exited
}

// exampleClient is a client of an agent of its own.
func exampleClient() (c *client.Client, stop func()) {
	addr, stopAgent := exampleAgent()
	c, err := client.Dial(context.Background(), addr)
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		stopAgent()
	}
}

// exampleAgent starts an agent to talk to.
func exampleAgent() (addr string, stop func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	a, err := startAgent(dir)
	if err != nil {
		log.Fatal(err)
	}
	return a.addr, func() {
		a.stop()
		os.RemoveAll(dir)
	}
}
