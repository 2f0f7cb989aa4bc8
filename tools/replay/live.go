package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"supervisor/client"
	"supervisor/journal"
)

// Waiting for a live agent.
const (
	followWait = 30 * time.Second       // how long one request waits for a record
	retryPause = 200 * time.Millisecond // between attempts to reach an agent that went away
)

// liveSource is the journal of a live agent. It is for one goroutine at a
// time.
type liveSource struct {
	addr   string
	client *client.Client
	last   journal.Head // the newest record read, whose successor's link can be checked
}

// isAddress tells an agent's address from a file's name.
func isAddress(name string) bool {
	network, _, ok := strings.Cut(name, ":")
	switch network {
	case "unix", "vsock", "tcp", "hybrid":
		return ok
	}
	return false
}

func dial(addr string) (*liveSource, error) {
	c, err := client.Dial(context.Background(), addr)
	if err != nil {
		return nil, err
	}
	return &liveSource{addr: addr, client: c}, nil
}

func (l *liveSource) close() error { return l.client.Close() }

func (l *liveSource) extent() (first uint64, head journal.Head, err error) {
	info, err := l.client.JournalInfo(context.Background())
	if err != nil {
		return 0, head, l.about(err)
	}
	head.Seq = info.HeadSeq
	head.Hash, err = parseHash(info.HeadHash)
	return info.FirstSeq, head, l.about(err)
}

// base is not known: agents do not tell the hash of what they pruned.
func (l *liveSource) base() (journal.Head, bool) { return journal.Head{}, false }

// snapshot finds none at an agent that is too old to serve it.
func (l *liveSource) snapshot(at uint64) (s journal.Snapshot, found bool, err error) {
	if at == 0 { // which would mean the newest
		return s, false, nil
	}
	if at > math.MaxInt64 {
		at = 0 // the newest
	}
	reply, err := l.client.JournalSnapshot(context.Background(), at)
	if errors.Is(err, client.ErrTooOld) {
		return s, false, nil
	}
	if err != nil || reply.Seq == 0 || at > 0 && reply.Seq > at { // an older agent knows the newest one only
		return s, false, l.about(err)
	}
	s = journal.Snapshot{Seq: reply.Seq, Version: int(reply.Version), Blob: reply.Data}
	s.Hash, err = parseHash(reply.Hash)
	return s, err == nil, l.about(err)
}

func (l *liveSource) page(after uint64) ([]journal.Record, error) { return l.read(after, 0) }

// next waits for the records after the given one, and over a handover or a
// restart of the agent. Without any in good time it returns none.
func (l *liveSource) next(after uint64) (rs []journal.Record, err error) {
	for began := time.Now(); time.Since(began) < client.DefaultPatience; time.Sleep(retryPause) {
		rs, err = l.read(after, followWait)
		if !errors.Is(err, client.ErrDisconnected) && !errors.Is(err, client.ErrUnavailable) {
			break
		}
	}
	return rs, err
}

// read reads a page, and checks the links between its records and to the last
// one read.
func (l *liveSource) read(after uint64, wait time.Duration) ([]journal.Record, error) {
	reply, err := l.client.JournalRead(context.Background(), client.JournalReadRequest{
		AfterSeq: after, Limit: pageRecords, WaitMS: wait.Milliseconds(), Raw: true,
	})
	if err != nil {
		return nil, l.about(err)
	}
	rs := make([]journal.Record, 0, len(reply.Records))
	for _, line := range reply.Records {
		r, err := parseRecord(line)
		if err == nil {
			err = l.check(&r)
		}
		if err != nil {
			return rs, l.about(err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// check checks a record's link, if the one before it is known.
func (l *liveSource) check(r *journal.Record) error {
	if r.Seq == 1 {
		l.last = journal.Head{} // where every chain begins
	}
	if r.Seq == l.last.Seq+1 && r.Hash != chained(l.last.Hash, r) {
		return &journal.BadRecord{Seq: r.Seq, Why: "does not match its hash"}
	}
	l.last = journal.Head{Seq: r.Seq, Hash: r.Hash}
	return nil
}

// chained is the hash that a record must have.
func chained(previous journal.Hash, r *journal.Record) journal.Hash {
	b := make([]byte, 0, len(previous)+8+len(r.Payload))
	b = append(b, previous[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Seq)
	return sha256.Sum256(append(b, r.Payload...))
}

// about says which agent err is about.
func (l *liveSource) about(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.addr, err)
}

// parseRecord reads a record as journal_read shows it, with its stored bytes.
func parseRecord(line []byte) (journal.Record, error) {
	var shown struct {
		Seq  uint64 `json:"seq"`
		Hash string `json:"hash"`
		Raw  []byte `json:"raw"`
	}
	if err := json.Unmarshal(line, &shown); err != nil {
		return journal.Record{}, fmt.Errorf("the agent's answer cannot be read: %w", err)
	}
	hash, err := parseHash(shown.Hash)
	return journal.Record{Seq: shown.Seq, Hash: hash, Payload: shown.Raw}, err
}

func parseHash(s string) (h journal.Hash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("the agent's answer holds %q where a hash belongs", s)
	}
	return journal.Hash(b), nil
}
