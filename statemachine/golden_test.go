package statemachine

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const samplesFile = "testdata/records.txt"

var addSamples = flag.Bool("add-samples", false, "store a sample of each kind that has none in "+samplesFile)

// sample is a record as some version of the agent stored it.
type sample struct {
	kind    Kind
	payload []byte
	json    string
}

// samples reads the samples: a kind, the stored record in hex and the JSON that
// it prints, a line each, then a blank line.
//
// A sample must never change. Journals of every version that was released hold
// such records, they are part of a hash chain, and each must be read for ever.
// A kind that gets a new field, or a new version, gets one more sample; a test
// that fails on an old one has found an agent that cannot read its own history.
func samples(t testing.TB) []sample {
	text, err := os.ReadFile(samplesFile)
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) != 3 {
			t.Fatalf("%q is no sample", block)
		}
		payload, err := hex.DecodeString(lines[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sample{Kind(lines[0]), payload, lines[2]})
	}
	return all
}

// TestSamples: every record ever stored can be read, and shows as it did.
func TestSamples(t *testing.T) {
	if *addSamples {
		writeSamples(t)
	}
	seen := map[Kind]bool{}
	var dec Decoder
	for i, s := range samples(t) {
		seen[s.kind] = true
		r, err := dec.Decode(uint64(i+1), s.payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, unknown := r.Event.(*Unknown); unknown || r.Event.Kind() != s.kind {
			t.Errorf("%s is read as %T", s.kind, r.Event)
		}
		if diff := cmp.Diff(s.json, string(r.AppendJSON(nil, sampleHash))); diff != "" {
			t.Errorf("%s: %s", s.kind, diff)
		}
	}
	for _, k := range allKinds {
		if !seen[k] {
			t.Errorf("no sample of %s: add one with -add-samples", k)
		}
	}
}

var sampleHash = strings.Repeat("0123456789abcdef", 4)

// writeSamples adds to the file, and leaves what is in it alone.
func writeSamples(t *testing.T) {
	file, err := os.OpenFile(samplesFile, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[Kind]bool{}
	n := uint64(0)
	if info, err := file.Stat(); err == nil && info.Size() > 0 {
		for _, s := range samples(t) {
			seen[s.kind] = true
			n++
		}
	}
	var enc Encoder
	for _, k := range allKinds {
		if e := sampleEvents[k]; !seen[k] && e != nil {
			n++
			r := Record{Seq: n, Stamp: Stamp{Instant{1_790_000_000_123_456_789, 98_765_432_101, testBoot}, 2}, Event: e}
			if strings.HasPrefix(string(k), "proc.") {
				r.Handle = "p_5f0c7d1e9a2b4c38"
			}
			lines := []string{string(k), hex.EncodeToString(enc.Encode(&r)), string(r.AppendJSON(nil, sampleHash)), "", ""}
			if _, err := file.WriteString(strings.Join(lines, "\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var sampleImages = Images{"1.4.2", "1.5.0", strings.Repeat("f6", 32)}

// sampleEvents are what samples were made from, with every field in use.
var sampleEvents = map[Kind]Event{
	KindAgentStarted: &AgentStarted{"1.4.2", 1, strings.Repeat("a1", 32), "journal.db.damaged-20260921T134640Z"},
	KindAgentStopped: &AgentStopped{"SIGTERM"},
	KindVerb:         &Verb{"proc_signal", "guest", "vsock:2", false, "not_running", "", 84, 3, 1_789_999_999_000_000_000},
	KindRequested: &Requested{Spec{
		Cmd: []string{"python3", "-c", "print('ä')"}, Cwd: "/home/user", EnvNames: []string{"HOME", "PATH"},
		PTY: true, Cols: 120, Rows: 40, TimeoutMS: 30_000, StdinNull: true,
		Session: "s_0123456789ab", ProcID: "6f1e8a52-33c1-4b7e-9d10-2f5c8a7b9e01",
		Idem: strings.Repeat("b2", 16), IdemArgs: strings.Repeat("c3", 16),
	}},
	KindStarted:     &Started{4711, 88_001, 5511, 5512},
	KindStartFailed: &StartFailed{"fork/exec /no/such: no such file or directory"},
	KindStdin:       &Stdin{65_536},
	KindStdinClosed: &StdinClosed{},
	KindSignalled:   &Signalled{9, true, false},
	KindResized:     &Resized{120, 40},
	KindDeadline:    &Deadline{},
	KindExited:      &Exited{139, 11, true, ReasonSignal, true, Rusage{8123, 2044, 9120}},
	KindDrained: &Drained{
		1 << 33, 3, strings.Repeat("d4", 32), strings.Repeat("e5", 32), []byte("bye\n"), []byte{0xff, 0x00, 0x0a},
	},
	KindOrphaned:  &Orphaned{true, false},
	KindLost:      &Lost{},
	KindCollected: &Collected{WhyRetention},
	KindDelivered: &Delivered{},
	KindSnapshot:  &Snapshot{65_536, 0},
	KindPruned:    &Pruned{65_536},

	KindSessionOpened:  &SessionOpened{"s_0123456789ab", strings.Repeat("0123456789abcdef", 4)},
	KindSessionResumed: &SessionResumed{"s_0123456789ab"},
	KindSessionLeft:    &SessionLeft{"s_0123456789ab"},
	KindSessionClosed:  &SessionClosed{"s_0123456789ab", WhyRetention},

	KindUpgradeRequested:  &UpgradeRequested{sampleImages, "/tmp/agent.new"},
	KindUpgradeRejected:   &UpgradeRejected{sampleImages, "preflight: exit status 3"},
	KindUpgradeHandoff:    &UpgradeHandoff{sampleImages, 64},
	KindUpgradeAdopted:    &UpgradeAdopted{sampleImages, 64, 8123},
	KindUpgradeVerified:   &UpgradeVerified{sampleImages, 65_536, "record 7: the hash is not that of the record"},
	KindUpgradeRolledBack: &UpgradeRolledBack{sampleImages, "the state is of version 2, this image reads 1"},
}

// dataNames are the names that each kind's data has at least.
var dataNames = map[Kind]string{
	KindAgentStarted: "version pid image_sha256",
	KindAgentStopped: "reason",
	KindVerb:         "op front peer ok code took_us count",
	KindRequested:    "cmd cwd env_names pty timeout_ms session proc_id",
	KindStarted:      "pid start_ticks stdout_ino stderr_ino",
	KindStartFailed:  "error",
	KindStdin:        "bytes",
	KindSignalled:    "signal group",
	KindResized:      "cols rows",
	KindExited:       "exit_code signal timed_out reason rusage",
	KindDrained:      "stdout_len stderr_len stdout_sha256 stderr_sha256 stdout_tail stderr_tail",
	KindCollected:    "why",
	KindSnapshot:     "through_seq",
	KindPruned:       "through_seq",

	KindSessionOpened:  "session hash",
	KindSessionResumed: "session",
	KindSessionLeft:    "session",
	KindSessionClosed:  "session why",

	KindUpgradeRequested:  "from to sha256 path",
	KindUpgradeRejected:   "from to sha256 error",
	KindUpgradeHandoff:    "from to sha256 procs",
	KindUpgradeAdopted:    "from to sha256 procs blackout_us",
	KindUpgradeVerified:   "from to sha256 through_seq error",
	KindUpgradeRolledBack: "from to sha256 error",
}

// TestDataNames: readers of the JSON find the names that they were promised.
func TestDataNames(t *testing.T) {
	for _, s := range samples(t) {
		var shown struct{ Data map[string]any }
		if err := json.Unmarshal([]byte(s.json), &shown); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(dataNames[s.kind]) {
			if _, ok := shown.Data[name]; !ok {
				t.Errorf("%s shows no %s", s.kind, name)
			}
		}
	}
}
