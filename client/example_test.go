package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

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
