package main

import (
	"encoding/json"
)

// link is a line of events --raw that says where the chain is.
type link struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// rawRecord is a line of events --raw with a record, whatever is in it.
type rawRecord struct {
	link
	Payload []byte `json:"payload"`
}

// printRaw prints the records after e.after as they are stored.
func (e *eventsCommand) printRaw(src source, head uint64) error {
	lines := json.NewEncoder(e.out)
	after, err := e.printAnchor(src, lines)
	if err != nil {
		return err
	}
	for r, err := range records(src, after, head) {
		if err == nil {
			err = lines.Encode(rawRecord{link{r.Seq, r.Hash.String()}, r.Payload})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printAnchor prints the link that the first whole line follows, unless that
// is record 1: the one before, or the oldest that there is. The lines go on
// after it.
func (e *eventsCommand) printAnchor(src source, lines *json.Encoder) (after uint64, err error) {
	if e.after == 0 {
		return 0, nil
	}
	if base, known := src.base(); known && base.Seq == e.after {
		return base.Seq, lines.Encode(link{base.Seq, base.Hash.String()})
	}
	anchor, err := src.page(e.after - 1)
	if len(anchor) == 0 {
		return e.after, err
	}
	return anchor[0].Seq, lines.Encode(link{anchor[0].Seq, anchor[0].Hash.String()})
}
