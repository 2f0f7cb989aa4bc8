package wire

// The fields of every message, in one place for both directions.

func (r *StartRequest) fields(v visitor) {
	v.texts("cmd", &r.Cmd, required)
	v.text("cwd", &r.Cwd, nonzero)
	v.texts("env", &r.Env, nonzero)
	v.flag("pty", &r.PTY, nonzero)
	v.number("cols", &r.Cols, nonzero)
	v.number("rows", &r.Rows, nonzero)
	v.long("timeout_ms", &r.TimeoutMS, nonzero)
	v.text("stdin", &r.Stdin, nonzero)
	v.text("idem", &r.Idem, nonzero)
}

func (r *StartReply) fields(v visitor) {
	v.text("handle", &r.Handle, always)
	v.number("pid", &r.PID, always)
}

func (r *HandleRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
}

func (r *Ack) fields(v visitor) {
	v.flag("unjournaled", &r.Unjournaled, nonzero)
}

func (r *ListReply) fields(v visitor) {
	v.list("procs", len(r.Procs), func(i int) Message {
		if i == len(r.Procs) {
			r.Procs = append(r.Procs, Proc{})
		}
		return &r.Procs[i]
	})
}

func (r *Rusage) fields(v visitor) {
	v.long("user_us", &r.UserUS, always)
	v.long("sys_us", &r.SysUS, always)
	v.long("max_rss_kib", &r.MaxRSSKiB, always)
}

func (r *Proc) fields(v visitor) {
	v.text("handle", &r.Handle, always)
	v.number("pid", &r.PID, always)
	v.texts("cmd", &r.Cmd, always)
	v.long("started_at", &r.StartedAt, always)
	v.flag("running", &r.Running, always)
	v.number("exit_code", &r.ExitCode, always)
	v.number("signal", &r.Signal, nonzero)
	v.long("exited_at", &r.ExitedAt, always)
	v.flag("pty", &r.PTY, always)
	v.flag("timed_out", &r.TimedOut, always)
	v.flag("drained", &r.Drained, always)
	v.long("stdout_len", &r.StdoutLen, always)
	v.long("stderr_len", &r.StderrLen, always)
	v.text("session", &r.Session, nonzero)
	v.text("reason", &r.Reason, nonzero)
	v.object("rusage", r.Rusage != nil, func() Message {
		if r.Rusage == nil {
			r.Rusage = new(Rusage)
		}
		return r.Rusage
	})
	v.flag("unjournaled", &r.Unjournaled, nonzero)
}

func (r *LogsRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
	v.long("offset", &r.Offset, nonzero)
	v.long("stderr_offset", &r.StderrOffset, nonzero)
	v.long("limit", &r.Limit, nonzero)
	v.long("wait_ms", &r.WaitMS, nonzero)
}

func (r *LogsReply) fields(v visitor) {
	v.base64("stdout", &r.Stdout, always)
	v.base64("stderr", &r.Stderr, always)
	v.long("stdout_offset", &r.StdoutOffset, always)
	v.long("stderr_offset", &r.StderrOffset, always)
	v.long("stdout_dropped", &r.StdoutDropped, always)
	v.long("stderr_dropped", &r.StderrDropped, always)
	v.long("stdout_first", &r.StdoutFirst, always)
	v.long("stderr_first", &r.StderrFirst, always)
	r.Exit.fields(v)
	v.flag("drained", &r.Drained, always)
}

func (r *Exit) fields(v visitor) {
	v.flag("running", &r.Running, always)
	v.number("exit_code", &r.ExitCode, always)
	v.number("signal", &r.Signal, nonzero)
	v.flag("timed_out", &r.TimedOut, always)
	v.text("reason", &r.Reason, nonzero)
	v.flag("unjournaled", &r.Unjournaled, nonzero)
}

func (r *StdinRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
	v.base64("data", &r.Data, nonzero)
	v.flag("close_stdin", &r.CloseStdin, nonzero)
}

func (r *StdinReply) fields(v visitor) {
	v.number("written", &r.Written, always)
}

func (r *SignalRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
	v.number("signal", &r.Signal, required)
	v.flag("group", &r.Group, always)
}

func (r *ResizeRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
	v.number("cols", &r.Cols, required)
	v.number("rows", &r.Rows, required)
}

func (r *WaitRequest) fields(v visitor) {
	v.text("handle", &r.Handle, required)
	v.long("timeout_ms", &r.TimeoutMS, nonzero)
}

func (r *WaitReply) fields(v visitor) { r.Exit.fields(v) }

func (r *UpgradeRequest) fields(v visitor) {
	v.text("path", &r.Path, required)
	v.text("sha256", &r.SHA256, required)
	v.flag("force", &r.Force, nonzero)
}

func (r *UpgradeReply) fields(v visitor) {
	v.text("agent_version", &r.AgentVersion, always)
}

func (r *InfoReply) fields(v visitor) {
	v.text("agent_version", &r.AgentVersion, always)
	v.text("image_sha256", &r.ImageSHA256, always)
	v.texts("caps", &r.Caps, always)
	v.texts("features", &r.Features, always)
	v.number("pid", &r.PID, always)
	v.long("uptime_sec", &r.UptimeSec, always)
	v.number("proc_count", &r.ProcCount, always)
	v.text("journal", &r.Journal, always)
	v.long("reaped", &r.Reaped, always)
}

func (r *JournalReadRequest) fields(v visitor) {
	v.sequence("after_seq", &r.AfterSeq, nonzero)
	v.long("limit", &r.Limit, nonzero)
	v.long("wait_ms", &r.WaitMS, nonzero)
	v.flag("raw", &r.Raw, nonzero)
}

func (r *JournalReadReply) fields(v visitor) {
	v.raw("records", &r.Records)
	v.sequence("head_seq", &r.HeadSeq, always)
	v.sequence("first_seq", &r.FirstSeq, always)
}

func (r *JournalSnapshotRequest) fields(v visitor) {
	v.sequence("at_seq", &r.AtSeq, nonzero)
	v.long("offset", &r.Offset, nonzero)
	v.long("limit", &r.Limit, nonzero)
}

func (r *JournalSnapshotReply) fields(v visitor) {
	v.sequence("seq", &r.Seq, always)
	v.text("hash", &r.Hash, nonzero)
	v.long("version", &r.Version, nonzero)
	v.long("size", &r.Size, always)
	v.base64("data", &r.Data, always)
}

func (r *JournalInfoReply) fields(v visitor) {
	v.sequence("head_seq", &r.HeadSeq, always)
	v.text("head_hash", &r.HeadHash, always)
	v.sequence("first_seq", &r.FirstSeq, always)
	v.long("bytes", &r.Bytes, always)
}
