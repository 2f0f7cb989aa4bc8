package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"time"
)

// diffJSON is what diff --json prints. Made to a state, as state --json prints
// it, the changes give the other: its three fields, and its two lists of rows,
// which are in the order of their requested_seq.
type diffJSON struct {
	From     endpointJSON `json:"from"`
	To       endpointJSON `json:"to"`
	Procs    changesJSON  `json:"procs"`
	Starting changesJSON  `json:"starting"`
}

// endpointJSON is the part of a state that is about no process.
type endpointJSON struct {
	Seq     uint64     `json:"seq"`
	Time    *time.Time `json:"time"`
	Partial bool       `json:"partial"`
}

// changesJSON is what makes one list of rows another.
type changesJSON struct {
	Added   []fieldsJSON `json:"added"`
	Removed []string     `json:"removed"` // handles
	Changed []changeJSON `json:"changed"`
}

// fieldsJSON is a row, or what else is an object.
type fieldsJSON map[string]json.RawMessage

// changeJSON is a row's changes. Where a row has no such field, its side is
// absent.
type changeJSON struct {
	Handle string               `json:"handle"`
	Fields map[string]fieldJSON `json:"fields"`
}

type fieldJSON struct {
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// compareStates finds the changes from one state to another.
func compareStates(a, b *stateJSON) *diffJSON {
	return &diffJSON{
		From:     endpointJSON{a.Seq, a.Time, a.Partial},
		To:       endpointJSON{b.Seq, b.Time, b.Partial},
		Procs:    compareRows(rowsOf(a.Procs), rowsOf(b.Procs)),
		Starting: compareRows(rowsOf(a.Starting), rowsOf(b.Starting)),
	}
}

// rows are both lists of a state as one: a start under way is in a state, too.
func (s *stateJSON) rows() []fieldsJSON {
	starting := rowsOf(s.Starting)
	for _, row := range starting {
		row["state"] = json.RawMessage(`"requested"`)
	}
	return append(rowsOf(s.Procs), starting...)
}

// rowsOf is the JSON form of rows.
func rowsOf[T any](rows []T) []fieldsJSON {
	fields := make([]fieldsJSON, len(rows))
	for i, row := range rows {
		b, err := json.Marshal(row)
		if err == nil {
			err = json.Unmarshal(b, &fields[i])
		}
		if err != nil {
			panic(err) // the rows are this program's own
		}
	}
	return fields
}

// text is a field, without the quotes if it is a string.
func (f fieldsJSON) text(name string) string {
	var s string
	if json.Unmarshal(f[name], &s) != nil {
		return string(f[name])
	}
	return s
}

func compareRows(a, b []fieldsJSON) changesJSON {
	changes := changesJSON{Added: []fieldsJSON{}, Removed: []string{}, Changed: []changeJSON{}}
	before, after := byHandle(a), byHandle(b)
	for _, row := range a {
		if handle := row.text("handle"); after[handle] == nil {
			changes.Removed = append(changes.Removed, handle)
		}
	}
	for _, row := range b {
		handle := row.text("handle")
		was := before[handle]
		if was == nil {
			changes.Added = append(changes.Added, row)
		} else if fields := compareFields(was, row); len(fields) > 0 {
			changes.Changed = append(changes.Changed, changeJSON{handle, fields})
		}
	}
	return changes
}

func byHandle(rows []fieldsJSON) map[string]fieldsJSON {
	found := make(map[string]fieldsJSON, len(rows))
	for _, row := range rows {
		found[row.text("handle")] = row
	}
	return found
}

func compareFields(a, b fieldsJSON) map[string]fieldJSON {
	fields := map[string]fieldJSON{}
	for name := range maps.Keys(a) {
		if !bytes.Equal(a[name], b[name]) {
			fields[name] = fieldJSON{a[name], b[name]}
		}
	}
	for name := range maps.Keys(b) {
		if a[name] == nil {
			fields[name] = fieldJSON{To: b[name]}
		}
	}
	return fields
}
