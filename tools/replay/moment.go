package main

import (
	"fmt"
	"strconv"
	"time"
)

// How times are shown: all of them local, except in JSON.
const (
	dayLayout   = "Mon 2006-01-02 -07:00"
	clockLayout = "15:04:05.000"
	timeLayout  = "2006-01-02 15:04:05.000"
)

// timeLayouts are what TIME may look like; seconds may have a fraction.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// moment is a flag that holds a TIME.
type moment struct {
	time.Time
	text string
}

// Set implements pflag.Value.
func (m *moment) Set(s string) error {
	m.text = s
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("want a time such as 2026-11-30T21:47:03Z, or a duration ago such as 10m")
}

// String implements pflag.Value.
func (m *moment) String() string { return m.text }

// Type implements pflag.Value.
func (m *moment) Type() string { return "TIME" }

// position is a flag that holds a place in the journal: a sequence number or
// a TIME. The zero position is the head.
type position struct {
	seq uint64
	moment
}

// Set implements pflag.Value.
func (p *position) Set(s string) (err error) {
	if p.seq, err = strconv.ParseUint(s, 10, 64); err == nil {
		p.text = s
		return nil
	}
	return p.moment.Set(s)
}

// Type implements pflag.Value.
func (p *position) Type() string { return "SEQ|TIME" }
