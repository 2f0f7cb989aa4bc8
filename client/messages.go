package client

import "supervisor/wire"

// The messages of the protocol, documented where they are defined.
type (
	Message            = wire.Message
	StartRequest       = wire.StartRequest
	StartReply         = wire.StartReply
	Proc               = wire.Proc
	LogsRequest        = wire.LogsRequest
	LogsReply          = wire.LogsReply
	Exit               = wire.Exit
	WaitReply          = wire.WaitReply
	InfoReply          = wire.InfoReply
	ExecRequest        = wire.ExecRequest
	ExecReply          = wire.ExecReply
	StatFileReply      = wire.StatFileReply
	JournalReadRequest = wire.JournalReadRequest
	JournalReadReply   = wire.JournalReadReply
	JournalInfoReply   = wire.JournalInfoReply

	JournalSnapshotReply = wire.JournalSnapshotReply
)

// AppendJSON appends a message as the JSON object that it is on the wire, less
// the ok field of a reply.
func AppendJSON(dst []byte, m Message) []byte {
	const ok = `{"ok":true`
	line := wire.AppendReply(nil, "", m, nil)
	fields := line[len(ok) : len(line)-1]
	if fields[0] == ',' {
		fields = fields[1:]
	}
	return append(append(dst, '{'), fields...)
}
