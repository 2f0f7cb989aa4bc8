package engine

import (
	"bytes"
	"testing"

	"supervisor/statemachine"
	"supervisor/wire"
)

// journal_snapshot serves the newest snapshot in parts, which are a registry.
func TestJournalSnapshotInParts(t *testing.T) {
	a := newAgent(t)
	if reply, err := a.JournalSnapshot(wire.JournalSnapshotRequest{Limit: 100}); err != nil || reply.Seq != 0 || len(reply.Data) > 0 {
		t.Errorf("without a snapshot: %+v, %v", reply, err)
	}
	h := a.sh("exit 3")
	a.wait(h)
	if err := a.whileIdle(a.snapshot); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	for {
		part, err := a.JournalSnapshot(wire.JournalSnapshotRequest{Offset: int64(whole.Len()), Limit: 100})
		if err != nil || len(part.Data) > 100 {
			t.Fatalf("%d bytes, %v", len(part.Data), err)
		}
		if len(part.Data) == 0 {
			break
		}
		whole.Write(part.Data)
	}
	r, err := statemachine.DecodeSnapshot(whole.Bytes())
	if err != nil || r.Get(h).Exit.ExitCode != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}
