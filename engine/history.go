package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"math"
	"time"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

// JournalInfo implements wire.Backend.
func (e *Engine) JournalInfo() (wire.JournalInfoReply, error) {
	head := e.journal.Head()
	return wire.JournalInfoReply{
		HeadSeq: head.Seq, HeadHash: head.Hash.String(), FirstSeq: e.journal.FirstSeq(), Bytes: e.journal.Bytes(),
	}, nil
}

// JournalSnapshot implements wire.Backend.
func (e *Engine) JournalSnapshot(r wire.JournalSnapshotRequest) (wire.JournalSnapshotReply, error) {
	s, found, err := e.journal.SnapshotAt(cmp.Or(r.AtSeq, math.MaxUint64))
	if err != nil {
		return wire.JournalSnapshotReply{}, wire.Errorf(wire.CodeJournalFailed, "reading the snapshot: %s", err)
	}
	if !found {
		return wire.JournalSnapshotReply{}, nil
	}
	size := int64(len(s.Blob))
	from := min(r.Offset, size)
	return wire.JournalSnapshotReply{
		Seq: s.Seq, Hash: s.Hash.String(), Version: int64(s.Version), Size: size,
		Data: s.Blob[from:min(from+r.Limit, size)],
	}, nil
}

// JournalRead implements wire.Backend.
func (e *Engine) JournalRead(ctx context.Context, r wire.JournalReadRequest) (wire.JournalReadReply, error) {
	var timeout <-chan time.Time
	if r.WaitMS > 0 {
		timer := time.NewTimer(time.Duration(min(r.WaitMS, wire.MaxLogWaitMS)) * time.Millisecond)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		woken := e.loud.next()
		if e.journal.Head().Seq > r.AfterSeq || timeout == nil {
			return e.readJournal(r)
		}
		select {
		case <-woken:
		case <-timeout:
			timeout = nil
		case <-ctx.Done():
			return wire.JournalReadReply{}, ctx.Err()
		case <-e.gate.closed():
			if err := e.gate.why(); err != nil {
				return wire.JournalReadReply{}, err
			}
		}
	}
}

func (e *Engine) readJournal(r wire.JournalReadRequest) (wire.JournalReadReply, error) {
	limit := cmp.Or(r.Limit, wire.DefaultReadMany)
	maxBytes := int(cmp.Or(r.MaxBytes, wire.MaxReadBytes))
	records, err := e.journal.Read(r.AfterSeq, int(min(limit, wire.MaxReadMany)), maxBytes)
	if err != nil {
		return wire.JournalReadReply{}, wire.Errorf(wire.CodeJournalFailed, "reading the journal: %s", err)
	}
	reply := wire.JournalReadReply{HeadSeq: e.journal.Head().Seq, FirstSeq: e.journal.FirstSeq()}
	var d statemachine.Decoder
	for size := 0; len(records) > 0 && size < maxBytes; records = records[1:] {
		line, err := recordJSON(&d, records[0], r.Raw)
		if err != nil {
			return wire.JournalReadReply{}, wire.Errorf(wire.CodeJournalFailed, "reading the journal: %s", err)
		}
		reply.Records = append(reply.Records, line)
		size += len(line)
	}
	return reply, nil
}

// recordJSON is a stored record as journal_read shows it.
func recordJSON(d *statemachine.Decoder, r journal.Record, raw bool) ([]byte, error) {
	rec, err := d.Decode(r.Seq, r.Payload)
	if err != nil {
		return nil, err
	}
	line := rec.AppendJSON(nil, r.Hash.String())
	if raw {
		line = append(line[:len(line)-1], `,"raw":"`...)
		line = base64.StdEncoding.AppendEncode(line, r.Payload)
		line = append(line, `"}`...)
	}
	return line, nil
}
