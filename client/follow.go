package client

import (
	"context"
	"iter"
	"math"
	"time"
)

const (
	// followLimit is how many bytes of each stream one read asks for.
	followLimit = 1 << 20

	// followWait is how long one read waits for more.
	followWait = 30 * time.Second

	// A read that took less than gatherTime and found less than gatherBytes
	// is followed by a pause of gatherTime, unless bytes were lost in the last
	// hurryReads. A ring of 256 KiB holds 2 ms of a fast writer.
	gatherTime  = time.Millisecond
	gatherBytes = 128 << 10
	hurryReads  = 64

	// quietReads is how many reads without a byte, after the exit, end the
	// streams of an agent that does not say when they are drained.
	quietReads = 3
)

// Stream is one of a process's outputs. A terminal has only Stdout.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
)

func (s Stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// Position is an offset in each stream: how many bytes came before.
type Position [2]int64

// Chunk is the next piece of a stream.
type Chunk struct {
	Stream Stream
	Offset int64 // of the first byte of Data
	// Dropped is how many bytes right before Offset are lost: they left the
	// ring unread. It is negative if the agent lost its ring and the stream
	// fell back, as it may when a guest crashes.
	Dropped int64
	Data    []byte // valid until the next chunk; empty where only a gap is told
}

// End is the offset behind the chunk.
func (k Chunk) End() int64 { return k.Offset + int64(len(k.Data)) }

// Follow yields the output of a process from a position on, as it comes, until
// both streams have ended and every byte was yielded. It goes on over broken
// connections and restarts of the agent; what was lost is told as a gap. An
// error is the last thing that it yields.
//
// To go on later, set Position[Stream] to End of the last chunk of each stream.
func (c *Client) Follow(ctx context.Context, handle string, from Position) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		f := follower{client: c, handle: handle, at: from}
		for {
			if err := f.read(ctx, followWait); err != nil {
				yield(Chunk{}, err)
				return
			}
			ended, err := f.ended(ctx)
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			if !f.deliver(yield) || ended {
				return
			}
		}
	}
}

// Held yields the output from a position on up to what there is now. In all
// else it is like Follow.
func (c *Client) Held(ctx context.Context, handle string, from Position) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		f := follower{client: c, handle: handle, at: Position{math.MaxInt64, math.MaxInt64}}
		err := f.read(ctx, 0) // past the end: tells the ends
		ends := f.replied()
		for f.at = from; err == nil; {
			if err = f.read(ctx, 0); err != nil {
				break
			}
			if !f.deliver(yield) || f.empty() || f.at[Stdout] >= ends[Stdout] && f.at[Stderr] >= ends[Stderr] {
				return
			}
		}
		yield(Chunk{}, err)
	}
}

// follower is one reader of a process's streams.
type follower struct {
	client *Client
	handle string
	at     Position // what comes next

	reply       LogsReply // its slices are used again
	saysRunning bool      // the agent tells running and drained, whether they
	saysDrained bool      // are true or not; older ones do not

	quiet int  // empty reads since the exit
	early bool // the last read did not wait as long as it was asked to
	pause backoff
	took  time.Duration // how long the last read took
	hurry int           // reads that are not put off
}

// read reads once from the position. The reply tells what is there; see
// deliver.
func (f *follower) read(ctx context.Context, wait time.Duration) error {
	request := LogsRequest{
		Handle:       f.handle,
		Offset:       f.at[Stdout],
		StderrOffset: f.at[Stderr],
		Limit:        followLimit,
		WaitMS:       wait.Milliseconds(),
	}
	var began time.Time
	err := f.client.patiently(ctx, wait, func(ctx context.Context) error {
		began = time.Now()
		f.reply = LogsReply{Stdout: f.reply.Stdout[:0], Stderr: f.reply.Stderr[:0]}
		return f.client.call(ctx, "proc_logs", &request, &f.reply, f.inspect)
	})
	f.took = time.Since(began)
	f.early = f.took < wait/2
	return err
}

// inspect looks for the fields that may be absent, where that matters.
func (f *follower) inspect(line []byte) {
	f.saysRunning = f.reply.Running || f.empty() && says(line, "running")
	f.saysDrained = f.reply.Drained || f.empty() && says(line, "drained")
}

// empty reports whether the last read brought no byte.
func (f *follower) empty() bool { return len(f.reply.Stdout)+len(f.reply.Stderr) == 0 }

// replied is the position behind the last reply.
func (f *follower) replied() Position { return Position{f.reply.StdoutOffset, f.reply.StderrOffset} }

// deliver yields what the last read brought, and moves on.
func (f *follower) deliver(yield func(Chunk, error) bool) bool {
	data := [2][]byte{f.reply.Stdout, f.reply.Stderr}
	for s, end := range f.replied() {
		k := Chunk{Stream: Stream(s), Offset: end - int64(len(data[s])), Data: data[s]}
		// From the offsets, so that no byte can be missing or twice unsaid.
		k.Dropped = k.Offset - f.at[s]
		f.at[s] = end
		if (k.Dropped != 0 || len(k.Data) > 0) && !yield(k, nil) {
			return false
		}
	}
	return true
}

// ended reports whether the last read was the last one. If it was not, and
// found nothing, the next one may be made at once.
func (f *follower) ended(ctx context.Context) (bool, error) {
	if !f.empty() {
		f.quiet, f.pause = 0, backoff{}
		return false, f.gather(ctx)
	}
	if f.reply.Drained {
		return true, nil
	}
	if !f.saysDrained {
		over, err := f.quietAfterExit(ctx)
		if over || err != nil {
			return over, err
		}
	}
	if f.early { // the agent does not know how to wait
		return false, f.pause.sleep(ctx)
	}
	return false, nil
}

// gather lets more output come together before the next read, where a process
// writes without a pause: else each read would find the little that came since
// the last one, and cost all sides more than its bytes. Behind a gap it hurries.
func (f *follower) gather(ctx context.Context) error {
	if f.reply.StdoutDropped+f.reply.StderrDropped > 0 {
		f.hurry = hurryReads
	}
	if f.hurry > 0 {
		f.hurry--
		return nil
	}
	if f.took > gatherTime || len(f.reply.Stdout)+len(f.reply.Stderr) > gatherBytes {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(gatherTime):
		return nil
	}
}

// quietAfterExit is how the streams of an agent end that does not tell it.
func (f *follower) quietAfterExit(ctx context.Context) (bool, error) {
	running := f.reply.Running
	if !f.saysRunning {
		exit, err := f.client.exitByList(ctx, f.handle)
		if err != nil {
			return false, err
		}
		running = exit.Running
	}
	if !running {
		f.quiet++
	}
	return f.quiet >= quietReads, nil
}
