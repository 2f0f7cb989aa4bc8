package main

import (
	"testing"

	"supervisor/statemachine"
)

func TestQuantities(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{span(0), "0 µs"}, {span(999), "999 µs"}, {span(1000), "1 ms"}, {span(1234), "1.2 ms"}, {span(9949), "9.9 ms"},
		{span(9950), "10 ms"}, {span(45_678), "46 ms"}, {span(1_500_000), "1.5 s"}, {span(61_000_000), "61 s"},
		{size(1), "1 byte"}, {size(1023), "1023 bytes"}, {size(1024), "1 KiB"}, {size(3 << 20), "3 MiB"}, {size(5 << 29), "2.5 GiB"},
		{signalName(9), "SIGKILL"}, {signalName(40), "signal 40"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// What strangers wrote cannot steer a terminal or break a line.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain ünï":     "plain ünï",
		"\x1b[31mred":   `\x1b[31mred`,
		"two\nlines":    `two\nlines`,
		"bad \xff byte": `bad \xff byte`,
		"\u202egnp.exe": `\u202egnp.exe`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An upgrade reads as what happened, in the order in which it does.
func TestUpgradeWords(t *testing.T) {
	images := statemachine.Images{From: "1", To: "2", SHA256: "9b1f"}
	for want, event := range map[string]statemachine.Event{
		"from 1 to what is in /tmp/new":           &statemachine.UpgradeRequested{Images: images, Path: "/tmp/new"},
		"preflight: no":                           &statemachine.UpgradeRejected{Images: images, Error: "preflight: no"},
		"from 1 to 2, 1 process":                  &statemachine.UpgradeHandoff{Images: images, Procs: 1},
		"version 2, 3 processes, blackout 9.8 ms": &statemachine.UpgradeAdopted{Images: images, Procs: 3, BlackoutUS: 9800},
		"through record 7":                        &statemachine.UpgradeVerified{Images: images, ThroughSeq: 7},
		"record 5 is damaged":                     &statemachine.UpgradeVerified{Images: images, ThroughSeq: 7, Error: "record 5 is damaged"},
		"from 1 to 2: no way":                     &statemachine.UpgradeRolledBack{Images: images, Error: "no way"},
	} {
		if got := words(&statemachine.Record{Event: event}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Arguments can be told apart.
func TestCommandLines(t *testing.T) {
	for want, argv := range map[string][]string{
		`sh -c "a b"`:  {"sh", "-c", "a b"},
		`"" x`:         {"", "x"},
		`"say \"hi\""`: {`say "hi"`},
		`"tab\t"`:      {"tab\t"},
	} {
		if got := command(argv); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Lines fit the terminal, but a handle is never cut.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		keep, width int
		want        string
	}{
		{0, 0, "p_ü7 what happened"},
		{0, 18, "p_ü7 what happened"},
		{0, 17, "p_ü7 what happen…"},
		{4, 3, "p_ü7…"},
		{17, 3, "p_ü7 what happened"},
	} {
		if got := fit("p_ü7 what happened", c.keep, c.width); got != c.want {
			t.Errorf("keep %d in %d: %q, want %q", c.keep, c.width, got, c.want)
		}
	}
}

// Every kind of a process's life has words, or says all by its name: nothing
// falls back to JSON.
func TestEveryEventHasWords(t *testing.T) {
	for _, rec := range busyDay().records {
		if w := words(&rec); len(w) > 0 && w[0] == '{' {
			t.Errorf("%s: %s", rec.Event.Kind(), w)
		}
	}
	unknown := statemachine.Record{Event: &statemachine.Unknown{Name: "x", Data: []byte{0x80}}}
	if w := words(&unknown); w != "{}" {
		t.Errorf("an unknown kind: %q", w)
	}
}
