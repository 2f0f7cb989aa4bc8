package main

import (
	"log/slog"
	"strings"
	"testing"

	"supervisor/engine"
)

// A panic while taking over is an error, after which there is a way back.
func TestPanicWhileTakingOver(t *testing.T) {
	a := &agent{log: slog.New(slog.DiscardHandler)}
	err := a.takeOver(&engine.Inheritance{}) // it has no state
	if err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("taken over with %v", err)
	}
}

// Without an inheritance there is nothing to go back to.
func TestNothingToGoBackTo(t *testing.T) {
	cause := usagef("a bad flag")
	if err := goBack(nil, cause); !strings.Contains(err.Error(), "a bad flag") {
		t.Errorf("went back with %v", err)
	}
}
