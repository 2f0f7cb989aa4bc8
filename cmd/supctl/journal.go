package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

// journalFlags say which records are wanted.
type journalFlags struct {
	after uint64
	tail  int
	once  bool
}

func (a *app) journalCommand() *cobra.Command {
	flags := journalFlags{tail: 10}
	cmd := &cobra.Command{
		Use:   "journal [flags]",
		Short: "Follow what the agent records",
		Long: `Journal prints the newest records of the agent's journal and then each one as it is
made: every verb and every transition of every process. With --json a record is a
line of JSON. To search, explain or verify a journal use replay.`,
		Example: `  supctl journal
  supctl journal --after 0 --once --json | jq -c 'select(.kind == "verb")'`,
		Args: operands(),
	}
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
		if cmd.Flags().Changed("after") && cmd.Flags().Changed("tail") {
			return usagef("journal: one of --after and --tail is enough")
		}
		if !cmd.Flags().Changed("after") {
			info, err := c.JournalInfo(ctx)
			if err != nil {
				return err
			}
			flags.after = max(info.HeadSeq, uint64(flags.tail)) - uint64(flags.tail)
		}
		if flags.once {
			return a.printRecords(c.Records(ctx, flags.after), flags.after)
		}
		return a.printRecords(c.FollowRecords(ctx, flags.after), flags.after)
	})
	cmd.Flags().Uint64Var(&flags.after, "after", 0, "begin behind the record with this `SEQ`; 0 is all there is")
	cmd.Flags().Var((*lineCount)(&flags.tail), "tail", "begin with the newest `N` records")
	cmd.Flags().Lookup("tail").DefValue = "10"
	cmd.Flags().BoolVar(&flags.once, "once", false, "end with the newest record")
	return cmd
}

func (a *app) printRecords(records iter.Seq2[client.Record, error], after uint64) error {
	day := ""
	for r, err := range records {
		if err != nil {
			return err
		}
		if r.Seq > after+1 {
			a.complain(fmt.Errorf("records %d to %d were pruned", after+1, r.Seq-1))
		}
		after = r.Seq
		line := string(r.Line)
		if !a.json {
			line = a.recordLine(r)
			if d := r.Time.Local().Format(time.DateOnly); d != day {
				day = d
				line = "        " + day + "\n" + line
			}
		}
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return outputError{err}
		}
	}
	return nil
}

// recordLine is a record for a person.
func (a *app) recordLine(r client.Record) string {
	const widestKind = 19
	line := fmt.Sprintf("%6d  %s  %-*s", r.Seq, r.Time.Local().Format("15:04:05.000"), widestKind, printable(r.Kind))
	if r.Handle != "" {
		line += "  " + printable(r.Handle)
	}
	line = strings.TrimRight(line+"  "+words(r.Data), " ")
	if columns := a.terminalWidth(); columns > 0 {
		line = fit(line, columns)
	}
	if a.colour() && failed(r) {
		line = red + line + plainText
	}
	return line
}

// failed reports whether a record tells of something that went wrong.
func failed(r client.Record) bool {
	switch r.Kind {
	case "proc.start_failed", "proc.lost", "upgrade.rejected", "upgrade.rolled_back":
		return true
	case "proc.exited":
		var exit struct {
			Code int `json:"exit_code"`
		}
		return json.Unmarshal(r.Data, &exit) == nil && exit.Code != 0
	case "verb":
		verb := struct{ OK bool }{true}
		return json.Unmarshal(r.Data, &verb) == nil && !verb.OK
	}
	return false
}

// words are the fields of a record's data, in its order.
func words(data []byte) string {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return printable(string(data))
	}
	var said []string
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			break
		}
		if value[0] == '{' {
			said = append(said, words(value))
		} else if name, text := fmt.Sprint(name), word(value); says(name, text) {
			said = append(said, printable(name)+"="+text)
		}
	}
	return strings.Join(said, " ")
}

// says reports whether a field is worth a person's time. Tails are output:
// see logs.
func says(name, text string) bool {
	switch text {
	case "", "null", "false":
		return name == "ok"
	case "0":
		return name == "exit_code"
	}
	return name != "took_us" && !strings.HasSuffix(name, "_tail") && name+text != "count1" && name+text != "oktrue"
}

// word is a value.
func word(value json.RawMessage) string {
	var text string
	var argv []string
	switch {
	case json.Unmarshal(value, &text) == nil:
		if text == "" {
			return ""
		}
		return quotedWord(short(text))
	case json.Unmarshal(value, &argv) == nil:
		if len(argv) == 0 {
			return ""
		}
		return "[" + quoted(argv) + "]"
	default:
		return printable(string(value))
	}
}

// short is enough of a SHA-256 to tell it from others, and all of any other
// text.
func short(text string) string {
	const enough = 12
	if digest, err := hex.DecodeString(text); err == nil && len(digest) == sha256.Size {
		return text[:enough]
	}
	return text
}

// printable is s with what would speak to a terminal escaped.
func printable(s string) string {
	if strings.ContainsFunc(s, unprintable) {
		return escaped(s)
	}
	return s
}
