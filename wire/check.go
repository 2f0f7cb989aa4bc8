package wire

import "strings"

// request is a message with rules that its types do not say. The engine sees
// only requests that passed.
type request interface {
	Message
	check() error
}

// nothing is the request of verbs without fields.
type nothing struct{}

func (*nothing) fields(visitor) {}
func (*nothing) check() error   { return nil }

func (r *HandleRequest) check() error { return nil }
func (r *StdinRequest) check() error  { return nil }

func (r *StartRequest) check() error {
	if r.Stdin != "" && r.Stdin != "pipe" && r.Stdin != "null" {
		return Errorf(CodeBadRequest, `stdin must be "pipe" or "null"`)
	}
	return firstOf(
		checkProgram(r.Cmd, r.Cwd, r.Env),
		within("cols", int64(r.Cols), 0, 65535),
		within("rows", int64(r.Rows), 0, 65535),
		natural("timeout_ms", r.TimeoutMS),
	)
}

func (r *UpgradeRequest) check() error { return withoutNUL("path", r.Path) }

func checkProgram(cmd []string, cwd string, env []string) error {
	if len(cmd) == 0 || cmd[0] == "" {
		return Errorf(CodeBadRequest, "cmd must name a program")
	}
	for _, entry := range env {
		if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
			return Errorf(CodeBadRequest, "env holds an entry that is not KEY=VALUE: %q", cut(name, 64))
		}
	}
	return firstOf(withoutNUL("cmd", cmd...), withoutNUL("env", env...), withoutNUL("cwd", cwd))
}

func (r *LogsRequest) check() error {
	return firstOf(
		natural("offset", r.Offset),
		natural("stderr_offset", r.StderrOffset),
		natural("limit", r.Limit),
		natural("wait_ms", r.WaitMS),
	)
}

func (r *SignalRequest) check() error {
	return within("signal", int64(r.Signal), 1, 64)
}

func (r *ResizeRequest) check() error {
	return firstOf(within("cols", int64(r.Cols), 1, 65535), within("rows", int64(r.Rows), 1, 65535))
}

func (r *WaitRequest) check() error { return natural("timeout_ms", r.TimeoutMS) }

func (r *JournalSnapshotRequest) check() error {
	return firstOf(natural("offset", r.Offset), natural("limit", r.Limit))
}

func (r *JournalReadRequest) check() error {
	return firstOf(natural("limit", r.Limit), natural("wait_ms", r.WaitMS))
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func natural(name string, n int64) error {
	if n < 0 {
		return Errorf(CodeBadRequest, "%s must not be negative", name)
	}
	return nil
}

func within(name string, n, low, high int64) error {
	if n < low || n > high {
		return Errorf(CodeBadRequest, "%s must be from %d to %d", name, low, high)
	}
	return nil
}

func withoutNUL(name string, texts ...string) error {
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 {
			return Errorf(CodeBadRequest, "%s must not contain a NUL character", name)
		}
	}
	return nil
}
