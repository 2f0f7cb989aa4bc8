package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"supervisor/procs"
	"supervisor/statemachine"
)

// handoffSchema is the version of handoff. A field may be added without a new
// one if an image that does not know it loses nothing; anything else is a new
// version, which older images refuse in the preflight.
const handoffSchema = 1

// maxHandoff bounds what is read of a state: any snapshot and the records after
// it fit.
const maxHandoff = 512 << 20

// PreflightLine is what `supervisor preflight STATE` prints when this image
// could go on from the state.
const PreflightLine = "supervisor preflight: ok"

// handoff is the state that one image leaves to the next, in a sealed memfd:
// a line of JSON, and behind it the snapshot as it is. It holds what the journal
// needs to derive the registry, so that a candidate can be tried without opening
// the journal; rings are files and pipes are descriptors, and neither is copied.
// Descriptors keep their numbers.
type handoff struct {
	Schema    int                 `json:"schema"` // the lowest that can read it
	Args      []Text              `json:"args"`   // of the command line, from the subcommand on
	Image     Text                `json:"image"`  // path of the installed image
	Images    statemachine.Images `json:"images"`
	Gen       int                 `json:"gen"`
	Boot      string              `json:"boot"`
	BornMono  int64               `json:"born_mono"`  // when the agent started, ns
	QuietMono int64               `json:"quiet_mono"` // when nothing more was accepted, ns
	SetAside  Text                `json:"set_aside,omitempty"`
	Reaped    int64               `json:"reaped,omitempty"` // orphans, so far

	Snapshot []byte   `json:"-"`        // the journal's newest; empty: there is none
	Records  [][]byte `json:"records"`  // the payloads after it, or all
	Head     string   `json:"head"`     // hash of the last one, which proves all
	Reducer  int      `json:"reducer"`  // which folded them
	Registry string   `json:"registry"` // SHA-256 of what that gave, as a snapshot

	LockFD    int             `json:"lock_fd"`
	JournalFD int             `json:"journal_fd"`
	Listeners []ListenerFD    `json:"listeners"`
	Processes []procs.Carried `json:"processes"`
}

// ListenerFD is a listening socket that is handed over.
type ListenerFD struct {
	Addr  Text   `json:"addr"`
	Front string `json:"front,omitempty"` // "" is the guest protocol, else a2e
	FD    int    `json:"fd"`
}

// Text is a string that need not be UTF-8, as paths and what holds them: such a
// one is an object with its bytes.
type Text string

type notUTF8 struct {
	Base64 []byte `json:"base64"`
}

func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(notUTF8{[]byte(t)})
}

func (t *Text) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var raw notUTF8
	err := json.Unmarshal(b, &raw)
	*t = Text(raw.Base64)
	return err
}

func texts(list []string) (out []Text) {
	for _, s := range list {
		out = append(out, Text(s))
	}
	return out
}

// state is what this image would leave now. It is called on the loop, and fails
// if the journal has not all of the registry.
func (e *Engine) state(listeners []ListenerFD) (*handoff, error) {
	h := &handoff{
		Schema: handoffSchema, Args: texts(os.Args[1:]), Image: Text(e.cfg.Image), Images: e.upgrade.images,
		Gen: e.gen, Boot: e.boot.String(),
		BornMono: e.born.Mono, QuietMono: e.quietSince.Load(), SetAside: Text(e.setAside), Reaped: e.table.Reaped(),
		Head: e.journal.Head().Hash.String(), Reducer: statemachine.ReducerVersion, Registry: digestOf(e.registry),
		LockFD: int(e.lock.Fd()), JournalFD: int(e.journal.File().Fd()),
		Listeners: listeners,
	}
	for _, c := range e.table.Carried() {
		// No record tells yet of a start under way. In a handover there is none.
		if _, starting := e.starting[c.Handle]; !starting {
			h.Processes = append(h.Processes, c)
		}
	}
	snapshot, _, err := e.journal.Snapshot()
	if err != nil {
		return nil, err
	}
	records, err := e.journal.Read(snapshot.Seq, 0, 0)
	if err != nil {
		return nil, err
	}
	h.Snapshot = snapshot.Blob
	for _, r := range records {
		h.Records = append(h.Records, r.Payload)
	}
	return h, nil
}

// digestOf is the same for equal registries.
func digestOf(r *statemachine.Registry) string {
	sum := sha256.Sum256(r.EncodeSnapshot())
	return hex.EncodeToString(sum[:])
}

func (h *handoff) encode() ([]byte, error) {
	line, err := json.Marshal(h)
	return append(append(line, '\n'), h.Snapshot...), err
}

// fds are all descriptors that must stay open.
func (h *handoff) fds() []int {
	fds := []int{h.LockFD, h.JournalFD}
	for _, l := range h.Listeners {
		fds = append(fds, l.FD)
	}
	for _, p := range h.Processes {
		fds = append(fds, p.FDs()...)
	}
	return fds
}

// readHandoff reads a state and checks all of it that can be checked without
// touching anything. It also returns the registry that follows from it.
func readHandoff(from io.Reader) (*handoff, *statemachine.Registry, error) {
	h, err := decodeHandoff(from)
	if err != nil {
		return nil, nil, fmt.Errorf("the state that is handed over: %w", err)
	}
	r, err := h.check()
	if err != nil {
		return nil, nil, fmt.Errorf("the state that is handed over: %w", err)
	}
	return h, r, nil
}

func decodeHandoff(from io.Reader) (*handoff, error) {
	blob, err := io.ReadAll(io.LimitReader(from, maxHandoff+1))
	if err != nil {
		return nil, err
	}
	if len(blob) > maxHandoff {
		return nil, fmt.Errorf("it is longer than %d bytes", maxHandoff)
	}
	line, snapshot, ok := bytes.Cut(blob, []byte{'\n'})
	if !ok {
		return nil, errors.New("it is cut short")
	}
	h := &handoff{Snapshot: snapshot}
	if err := json.Unmarshal(line, h); err != nil {
		return nil, err
	}
	if h.Schema != handoffSchema {
		return nil, fmt.Errorf("it is of version %d, this image reads %d", h.Schema, handoffSchema)
	}
	return h, nil
}

// check derives the registry and compares the parts of a state with each other.
func (h *handoff) check() (*statemachine.Registry, error) {
	if _, err := statemachine.ParseBoot(h.Boot); err != nil {
		return nil, err
	}
	r, err := h.fold()
	if err != nil {
		return nil, err
	}
	for _, c := range h.Processes {
		p := r.Get(c.Handle)
		if !c.Forgotten && (p == nil || p.Started.PID != c.PID || p.Started.StartTicks != c.StartTicks) {
			return nil, fmt.Errorf("process %s is not the registry's", c.Handle)
		}
	}
	return r, nil
}

// fold derives the registry. The same reducer must come to the same one;
// another may know more, or less.
func (h *handoff) fold() (*statemachine.Registry, error) {
	r := statemachine.NewRegistry()
	if len(h.Snapshot) > 0 {
		var err error
		if r, err = statemachine.DecodeSnapshot(h.Snapshot); err != nil {
			return nil, err
		}
	}
	var d statemachine.Decoder
	for _, payload := range h.Records {
		rec, err := d.Decode(r.Seq()+1, payload)
		if err == nil {
			err = r.Apply(&rec)
		}
		if err != nil {
			return nil, err
		}
	}
	if h.Reducer == statemachine.ReducerVersion && digestOf(r) != h.Registry {
		return nil, errors.New("its registry is not what follows from its records")
	}
	return r, nil
}

// Preflight tells whether this image could go on from a state, and with which
// command line it would have to.
func Preflight(path string) (args []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, _, err := readHandoff(f)
	if err != nil {
		return nil, err
	}
	for _, arg := range h.Args {
		args = append(args, string(arg))
	}
	return args, nil
}
