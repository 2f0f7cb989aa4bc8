package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// journalWait is how long one read waits for a record.
const journalWait = 30 * time.Second

// Record is one record of an agent's journal.
type Record struct {
	Seq    uint64          `json:"seq"`
	Time   time.Time       `json:"time"`
	Boot   string          `json:"boot"` // the kernel's boot id
	Gen    int             `json:"gen"`  // images since the agent started
	Kind   string          `json:"kind"`
	Handle string          `json:"handle"` // "" where there is none
	Data   json.RawMessage `json:"data"`   // an object; its fields are the kind's
	Hash   string          `json:"hash"`

	Line []byte `json:"-"` // the record as the agent sent it
}

// Records yields the records after a sequence up to the newest there is now.
// Sequences have no holes: where the first one is later than after+1, the
// records before it were pruned. An error is the last thing that it yields.
func (c *Client) Records(ctx context.Context, after uint64) iter.Seq2[Record, error] {
	return c.records(ctx, after, 0)
}

// FollowRecords is Records that goes on as records are made, until ctx ends;
// over broken connections, upgrades and restarts of the agent.
func (c *Client) FollowRecords(ctx context.Context, after uint64) iter.Seq2[Record, error] {
	return c.records(ctx, after, journalWait)
}

func (c *Client) records(ctx context.Context, after uint64, wait time.Duration) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			reply, err := c.recordsAfter(ctx, after, wait)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, line := range reply.Records {
				r, err := parseRecord(line)
				if !yield(r, err) || err != nil {
					return
				}
				after = r.Seq
			}
			if wait == 0 && (after >= reply.HeadSeq || len(reply.Records) == 0) {
				return
			}
		}
	}
}

// recordsAfter reads once, from an agent that may be away for a while.
func (c *Client) recordsAfter(ctx context.Context, after uint64, wait time.Duration) (reply JournalReadReply, err error) {
	err = c.patiently(ctx, wait, func(ctx context.Context) error {
		reply, err = c.JournalRead(ctx, JournalReadRequest{AfterSeq: after, WaitMS: wait.Milliseconds()})
		return err
	})
	return reply, err
}

func parseRecord(line []byte) (r Record, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the agent sent a record that cannot be read: %w", err)
	}
	r.Line = line
	return r, nil
}
